"""Runs a build that was made from source: the dumper, one process for each model and round, full logits of every row.

In go a model and jobs, out come rows as the program wrote them. The process has a time limit and is ended when it is
over; what it had written before stays an answer.
"""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.dumper import Dumped, DumpJob, job_text, read_dump, read_lines
from audit.errors import ReplyError, RowsError
from audit.identity.assets import Asset
from audit.identity.plan import IdentityPlan
from audit.identity.record import CaptureFailure, Library
from audit.identity.running import Answer, Job, Outcome, code_path
from audit.local.process import file_sha256

__all__ = ["DumpingRunner"]

_ALL_LAYERS = 999
# Of what the program says when it fails.
_WORDS_MAX = 300


@dataclass(frozen=True, kw_only=True)
class DumpingRunner:
    """Starts the dumper of one build; its dumps go below `folder`."""

    program: Path
    folder: Path
    environment: Mapping[str, str]

    def run(self, asset: Asset, plan: IdentityPlan, jobs: Sequence[Job]) -> Outcome:
        """Run the program once and read what it dumped."""
        out = Path(tempfile.mkdtemp(dir=self.folder, prefix=f"dump-{asset.cell}-"))
        asked = [
            DumpJob(name=f"{job.form}-{job.prompt}", rows=plan.rows, ids=job.ids, forced=job.forced) for job in jobs
        ]
        words = job_text(
            asset.model.path,
            out,
            asked,
            ctx=plan.ctx,
            batch=plan.batch,
            ubatch=plan.ubatch,
            threads=plan.threads,
            gpu_layers=0 if plan.device == "cpu" else _ALL_LAYERS,
        )
        (out / "job").write_text(words, encoding="utf-8")
        failure = self._start(out, plan.timeout_s)
        dumped = read_lines((out / "lines").read_text(encoding="utf-8", errors="replace"))
        log = (out / "log").read_text(encoding="utf-8", errors="replace")
        if failure is not None and failure.kind == "crash":
            failure = CaptureFailure(kind="crash", message=f"{failure.message}: {_last(log)}")
        answers = [_answer(job, wanted, dumped, out, asset, failure) for job, wanted in zip(jobs, asked, strict=True)]
        return Outcome(
            answers=answers,
            executable=f"sha256:{file_sha256(self.program)}",
            libraries=_libraries(dumped),
            path=code_path(log),
            failure=failure,
        )

    def _start(self, out: Path, timeout_s: float) -> CaptureFailure | None:
        with (out / "lines").open("wb") as lines, (out / "log").open("wb") as log:
            try:
                done = subprocess.run(
                    [str(self.program), str(out / "job")],
                    stdin=subprocess.DEVNULL,
                    stdout=lines,
                    stderr=log,
                    env=dict(self.environment),
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return CaptureFailure(kind="timeout", message=f"the process did not end within {timeout_s:g} s")
            except OSError as error:
                return CaptureFailure(kind="start", message=f"the dumper cannot be started: {error.strerror}")
        if done.returncode != 0:
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
            return CaptureFailure(kind="crash", message=f"the dumper ended with {how}")
        return None


def _answer(
    job: Job, wanted: DumpJob, dumped: Dumped, out: Path, asset: Asset, failure: CaptureFailure | None
) -> Answer:
    try:
        rows = read_dump(dumped, out, wanted, vocabulary=asset.vocabulary)
    except RowsError as error:
        return Answer(job=job, failure=CaptureFailure(kind="rows", message=error.message))
    except ReplyError as error:
        return Answer(job=job, failure=failure or CaptureFailure(kind="dump", message=error.message))
    tokens = dumped.captures[wanted.name][2]
    if job.forced and tokens != job.forced:
        return Answer(job=job, failure=CaptureFailure(kind="forced", message="other tokens than the forced ones"))
    return Answer(job=job, tokens=tokens, rows=rows)


def _libraries(dumped: Dumped) -> list[Library]:
    return [
        Library(name=path.name, sha256=f"sha256:{file_sha256(path)}" if path.is_file() else None)
        for path in sorted(dumped.libraries, key=lambda path: path.name)
    ]


def _last(log: str) -> str:
    """Return the last thing that the program said, without the folders of this machine."""
    lines = [line for line in log.splitlines() if line.strip()]
    words = (lines or ["it said nothing"])[-1].split()
    return " ".join(Path(word).name if "/" in word else word for word in words)[:_WORDS_MAX]
