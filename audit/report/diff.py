"""Two trials, of one run or of two, or two stream files: what differs between them, where, and what they shared.

In go operands of a command line, out come an explanation, its text for a terminal, and the same as a document. The
second of the two is called the reference, whatever it was in its run. Nothing is judged: two trials may well differ.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from audit.analyse.evidence import Evidence, read_evidence
from audit.compare import Consequence, Difference, consequence, first_difference
from audit.errors import UsageError
from audit.report.difference import Digits, Entry, Pair, difference_words, number_text, side_by_side, step_rows
from audit.report.text import table_text
from audit.report.visible import terminal
from audit.report.words import counted
from audit.store import Run
from audit.stream import FORMAT, Step, Stream

__all__ = ["Explanation", "Side", "diff_document", "diff_text", "explain", "sides"]

_HINT = "determinism diff RUN TRIAL [TRIAL], or two of RUN:TRIAL, RUN:SERVER:TRIAL and STREAM.jsonl"
_TWO, _THREE = 2, 3


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """How a trial was executed, as far as the record says; times in seconds since its process's anchor."""

    server: str
    trial: str
    condition: str
    prompt: str
    prompt_digest: str | None
    sampling: str
    unit: str
    members: int
    slot: int | None
    cache_n: int | None
    prompt_n: int | None
    streamed: bool
    requests: int
    sent_s: float | None
    last_byte_s: float | None


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two: its name, its stream and the digest of that, and its circumstances where it is a trial."""

    name: str
    digest: str
    stream: Stream
    circumstances: Circumstances | None = None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Everything there is to say about two streams."""

    trial: Side
    reference: Side
    shared: list[str]
    tokens_only: bool
    difference: Difference | None
    words: list[str]
    steps: list[dict[str, Any]]
    pairs: list[Pair]
    consequence: Consequence | None


def sides(operands: Sequence[str]) -> tuple[Side, Side]:
    """Find the two that a command line names.

    Args:
        operands: `RUN TRIAL TRIAL`, `RUN TRIAL` for a trial and its reference, or two stream files or `RUN:TRIAL`; a
            trial of a run with several servers is `SERVER:TRIAL`.

    Raises: UsageError where there is no such thing, or several.
    """
    first, *rest = operands
    if not (Path(first) / "manifest.json").is_file():
        if len(operands) != _TWO:
            raise UsageError(f"{len(operands)} operands, the first no run folder: {first!r}", hint=_HINT)
        return _free(first), _free(rest[0])
    if len(operands) not in {_TWO, _THREE}:
        raise UsageError(f"{len(operands) - 1} trials are named, and a difference has two", hint=_HINT)
    trials = _Trials(Path(first))
    one = trials.side(rest[0])
    return one, trials.side(rest[1]) if rest[1:] else trials.reference(one)


def _free(operand: str) -> Side:
    """Read a stream file or a trial that names its run."""
    path = Path(operand)
    if path.is_file():
        stream = Stream.from_bytes(path.read_bytes())
        return Side(name=path.name, digest=stream.logprob_digest, stream=stream)
    run, _, trial = operand.partition(":")
    while trial and not (Path(run) / "manifest.json").is_file():
        more, _, trial = trial.partition(":")
        run = f"{run}:{more}"
    if not trial:
        raise UsageError(f"{operand!r} is neither a stream file nor RUN:TRIAL of a run folder", hint=_HINT)
    return _Trials(Path(run)).side(trial)


class _Trials:
    """The trials of one run."""

    def __init__(self, folder: Path) -> None:
        self._run = Run.open(folder)
        self._evidence = read_evidence(self._run)

    def side(self, operand: str) -> Side:
        """Return the trial that `TRIAL` or `SERVER:TRIAL` names."""
        server, _, trial = operand.rpartition(":")
        having = [one for one in self._evidence.values() if trial in one.planned and server in {"", one.label}]
        if not having:
            known = ", ".join(self._evidence)
            raise UsageError(
                f"{self._run.folder} has no trial {operand!r}",
                hint=f"its servers are {known}; determinism report {self._run.folder} --trials FILE lists its trials",
            )
        if len(having) > 1:
            named = ", ".join(f"{one.label}:{trial}" for one in having)
            raise UsageError(f"{trial} is a trial of {len(having)} servers", hint=f"name one of {named}")
        return self._side(having[0], trial)

    def reference(self, side: Side) -> Side:
        """Return the trial that a trial of this run is compared with."""
        where = side.circumstances
        if where is None:
            raise UsageError(f"{side.name} is no trial", hint=_HINT)
        evidence = self._evidence[where.server]
        reference = evidence.planned[where.trial].trial.reference
        if reference is None:
            raise UsageError(f"{side.name} is compared with no other trial", hint="name the second one too")
        return self._side(evidence, reference)

    def _side(self, evidence: Evidence, trial: str) -> Side:
        said = evidence.outcome(trial)
        name = f"{evidence.label}:{trial}"
        if said is None or said.logprob is None:
            kind = "was not completed" if said is None else "holds rows of the whole vocabulary and no stream"
            raise UsageError(f"{name} {kind}", hint="name a trial with a stream")
        if not self._run.has("streams", said.logprob):
            raise UsageError(f"{self._run.folder} leaves the stream of {name} out", hint="use the run it was made from")
        return Side(
            name=name,
            digest=said.logprob,
            stream=self._run.stream(said.logprob),
            circumstances=_circumstances(evidence, trial),
        )


def _circumstances(evidence: Evidence, name: str) -> Circumstances:
    planned = evidence.planned[name]
    answers = [(invoke, complete) for invoke, complete in evidence.answers(name) if complete is not None]
    last = answers[-1][1]
    reply = last.reply
    return Circumstances(
        server=evidence.label,
        trial=name,
        condition=planned.trial.condition,
        prompt=planned.prompt,
        prompt_digest=evidence.prompts.get(planned.prompt),
        sampling=planned.trial.sampling,
        unit=planned.unit.unit,
        members=len(planned.unit.trials),
        slot=reply.id_slot if reply else None,
        cache_n=reply.cache_n if reply else None,
        prompt_n=reply.prompt_n if reply else None,
        streamed=planned.trial.streamed,
        requests=len(answers),
        sent_s=_seconds(answers[0][1].sent_ns),
        last_byte_s=_seconds(last.last_byte_ns),
    )


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def explain(trial: Side, reference: Side) -> Explanation:
    """Compare two streams; those that were asked with another `n_probs` by their tokens alone."""
    tokens_only = trial.stream.n_probs != reference.stream.n_probs
    found = first_difference(trial.stream, reference.stream, tokens_only=tokens_only)
    at = found.step if found is not None else None
    two = (_step(side.stream, at) for side in (trial, reference))
    return Explanation(
        trial=trial,
        reference=reference,
        shared=_shared(trial.circumstances, reference.circumstances),
        tokens_only=tokens_only,
        difference=found,
        words=difference_words(trial.stream, reference.stream, found),
        steps=step_rows(trial.stream, reference.stream, tokens_only=tokens_only),
        pairs=side_by_side(*two) if at is not None else [],
        consequence=None if tokens_only or found is None else consequence(trial.stream, reference.stream),
    )


def _step(stream: Stream, at: int | None) -> Step | None:
    return stream.steps[at] if at is not None and at < len(stream.steps) else None


def _shared(one: Circumstances | None, two: Circumstances | None) -> list[str]:
    """Say what the two executions had in common, and what not."""
    if one is None or two is None:
        return []
    prompt = one.prompt_digest == two.prompt_digest
    told = ["the same prompt" if prompt else "different prompts, so that a difference is expected"]
    told.append("the same slot" if one.slot == two.slot else f"slots {one.slot} and {two.slot}")
    if (one.server, one.unit) == (two.server, two.unit) and one.trial != two.trial:
        told.append(f"members of one wave of {one.members}")
    else:
        told += [f"the trial {_company(one)}", f"the reference {_company(two)}"]
    cached = (one.cache_n, two.cache_n)
    prompt_tokens = f"{cached[0]} and {cached[1]} prompt tokens from the cache"
    told.append("nothing from the cache" if cached == (0, 0) else prompt_tokens)
    if one.sampling != two.sampling:
        told.append(f"{one.sampling} and {two.sampling}")
    return told


def _company(side: Circumstances) -> str:
    return f"in a wave of {side.members}" if side.members > 1 else "alone"


def diff_document(explained: Explanation) -> dict[str, Any]:
    """Return the explanation for `--json`."""
    return {
        "format": FORMAT,
        "trial": _side_document(explained.trial),
        "reference": _side_document(explained.reference),
        "shared": explained.shared,
        "tokens_only": explained.tokens_only,
        "difference": None if explained.difference is None else explained.difference._asdict(),
        "words": explained.words,
        "steps": explained.steps,
        "top_k": [_pair_document(pair) for pair in explained.pairs],
        "consequence": None if explained.consequence is None else explained.consequence._asdict(),
    }


def _side_document(side: Side) -> dict[str, Any]:
    where = None if side.circumstances is None else asdict(side.circumstances)
    return {"name": side.name, "stream": side.digest, "steps": len(side.stream.steps), "circumstances": where}


def _pair_document(pair: Pair) -> dict[str, Any]:
    def entry(side: Entry | None) -> dict[str, str] | None:
        return None if side is None else {name: cut.same + cut.differs for name, cut in side._asdict().items()}

    return {"rank": pair.rank, "differs": pair.differs, "trial": entry(pair.trial), "reference": entry(pair.reference)}


def _cut(cut: Digits) -> str:
    """Return a number with the digits that differ in brackets."""
    return f"{cut.same}[{cut.differs}]" if cut.differs else cut.same


def diff_text(explained: Explanation) -> str:
    """Return the explanation for a terminal: words, steps around the difference, the top-k of both at it."""
    told = [
        table_text([
            {"": name, "name": terminal(side.name), "stream": side.digest.removeprefix("sha256:")[:16]}
            for name, side in (("trial", explained.trial), ("reference", explained.reference))
        ])
    ]  # fmt: skip
    if explained.shared:
        told.append(f"{'; '.join(explained.shared)}\n")
    if explained.tokens_only:
        told.append("They were asked for different numbers of logprobs, so that only tokens are compared.\n")
    told.append("\n".join(explained.words) + "\n")
    if explained.difference is not None:
        told.append("steps around it\n" + table_text([_step_row(row) for row in explained.steps]))
        told.append(
            f"step {explained.difference.step} of both, with what differs in brackets\n"
            + table_text([_pair_row(pair) for pair in explained.pairs])
        )
    if explained.consequence is not None:
        told.append(_consequence(explained.consequence))
    return "\n".join(told)


def _step_row(row: dict[str, Any]) -> dict[str, str]:
    nats = row["nats"]
    return {
        "": ">" if row["difference"] else "",
        "step": str(row["step"]),
        "token": str(row["token"]),
        "reference": str(row["reference_token"]),
        "logprob of the reference's token": number_text(row["logprob"]),
        "in the reference": number_text(row["reference_logprob"]),
        "ulp": "-" if row["ulp"] is None else str(row["ulp"]),
        "nats": "-" if nats is None else f"{nats:+.3g}",
        "margin": "-" if row["margin"] is None else f"{row['margin']:.3g}",
        "top-k": "equal" if row["top_k_equal"] else "differs",
    }


def _pair_row(pair: Pair) -> dict[str, str]:
    row = {"rank": pair.rank}
    for name, side in (("", pair.trial), ("reference ", pair.reference)):
        cuts = ("none", "", "") if side is None else tuple(_cut(cut) for cut in side)
        row |= dict(zip((f"{name}token", f"{name}logprob", f"{name}hex"), cuts, strict=True))
    return row


def _consequence(found: Consequence) -> str:
    percent = "" if found.perplexity_percent is None else f", perplexity by {found.perplexity_percent:+.3g} %"
    return (
        f"over {counted(found.steps, 'step')}, up to the first other token, the summed logprob of the reference's "
        f"tokens changes by {found.nats:+.3g} nats{percent}; {counted(found.rank_swaps, 'pair')} of ranks swapped\n"
    )
