"""scripts/verify.py holds against runs that are right, wrong, edited, cut, linked and nested: each with its exit code.

The runs come from tests/unit/make_run.py, which shares no code with the verifier or the audit. Where a verdict is
asserted it stands in the test, taken from docs/reference/verdicts.md, never from either program.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from scipy.stats import beta

from tests.unit.make_run import VOCABULARY, Made, f32, one_ulp, seal
from tests.unit.toy_plan import canonical, plan, sha

JSON = Any
SOURCE = Path(__file__).resolve().parents[2] / "scripts" / "verify.py"
CONTROLS = [{"name": name, "count": 1} for name in ("control_prompt", "control_seed", "control_temperature")]
SMALL: list[dict[str, JSON]] = [
    {"name": "repeat_greedy"},
    {"name": "concurrent_greedy", "levels": [2], "again": 1},
    *CONTROLS,
]


def load() -> ModuleType:
    """Import the verifier from its file."""
    spec = spec_from_file_location("verify_under_test", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


verify = load()


def report(folder: Path, *flags: str) -> JSON:
    """Verify a folder; return the report of its run."""
    lines: list[str] = []
    printer = pytest.MonkeyPatch()
    with printer.context() as patch:
        patch.setattr("builtins.print", lambda text="": lines.append(text))
        code = verify.main(["--json", *flags, str(folder)])
    document = json.loads("\n".join(lines))
    assert document["exit"] == code
    found = document["runs"][0]
    assert found["exit"] == code
    return found


def cells(found: JSON) -> dict[str, JSON]:
    """Return the cells of a report by condition."""
    return {cell["condition"]: cell for cell in found["findings"]["cells"]}


def verdicts(found: JSON) -> dict[str, str]:
    """Return the verdicts of a report by condition."""
    return {condition: cell["verdict"] for condition, cell in cells(found).items()}


def broken(found: JSON) -> set[str]:
    """Return the names of the checks that contradict."""
    assert (found["exit"] == 4) == bool(found["contradictions"])
    return {one["check"] for one in found["contradictions"]}


def reseal(folder: Path) -> None:
    """List and digest again all files of a folder, as a forger would."""
    paths = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    seal(folder, [path for path in paths if path not in ("SHA256SUMS", "omitted.json")])


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of every family, on which nothing is wrong."""
    return Made(plan()).write(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small run on which nothing is wrong."""
    return Made(plan(SMALL)).write(tmp_path_factory.mktemp("small"))


def bent(condition: str, *, at: int = 3, every: bool = True) -> Callable[[JSON, JSON], JSON]:
    """Return a server that moves one logprob by one ULP in the trials of a condition."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        if trial["condition"] == condition and not trial.get("support") and (every or trial["id"].endswith("0")):
            place = min(at, len(steps) - 1)
            if steps[place][2]:
                token, own, top = steps[place]
                top[-1][1] = one_ulp(top[-1][1])
                steps[place][1] = top[-1][1] if token == top[-1][0] else own
            else:
                steps[place][0] += 1
        return steps

    return alter


# The file itself -----------------------------------------------------------------------------------------------------


def test_it_imports_the_standard_library_only() -> None:
    """Every import of the file is of the standard library."""
    tree = ast.parse(SOURCE.read_text(encoding="ascii"))
    names = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
    assert len(names) > 10


def run_with(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the file isolated and without installed packages."""
    command = [python, "-I", "-S", str(SOURCE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_runs_isolated_and_ends_with_a_sentence(everything: Path) -> None:
    """Without site packages it exits 0, prints ASCII, and its last line says sound."""
    done = run_with(sys.executable, str(everything))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert done.stdout.splitlines()[-1].startswith("sound: 23 cells")


def starts(program: str) -> bool:
    """Tell whether a Python starts: a version manager may put a name on the path that does not."""
    return subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0


def test_it_runs_on_the_oldest_python(everything: Path) -> None:
    """A Python 3.9 (Debian's pypy3 is one) says the same as the one of the tests."""
    found = filter(None, map(shutil.which, ("python3.9", "pypy3")))
    programs = [program for program in found if starts(program)]
    if not programs:
        pytest.skip("neither python3.9 nor pypy3 on this machine")
    for program in programs:
        done = run_with(program, "--json", str(everything))
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["runs"][0]["findings"] == report(everything)["findings"]


def test_on_an_older_python_it_says_what_it_needs(tmp_path: Path) -> None:
    """The file parses as Python 3.7, whose reader is told to use 3.9, with exit 2."""
    text = SOURCE.read_text(encoding="ascii")
    assert len(ast.parse(text, feature_version=(3, 7)).body) > 100
    changed = tmp_path / "verify.py"
    changed.write_text(text.replace("sys.version_info < (3, 9)", "sys.version_info < (99, 9)"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(changed), "run"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs Python 3.9" in done.stderr


def test_golden_floats_of_the_page_are_canonical(repository: Path) -> None:
    """Each golden value of docs/reference/record.md is what the verifier writes for its double."""
    page = (repository / "docs" / "reference" / "record.md").read_text(encoding="ascii")
    golden = re.findall(r"^    (\S+) +([0-9a-f]{16})$", page, re.MULTILINE)
    assert len(golden) == 40
    for text, bits in golden:
        assert verify.encode(struct.unpack(">d", bytes.fromhex(bits))[0]) == text.encode() + b"\n"


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 30, 60, 200])
def test_bounds_are_those_of_clopper_and_pearson(n: int) -> None:
    """The bounds contain scipy's exact ones and are at most one millionth wider on each side."""
    for k in range(n + 1):
        low, high = verify.bounds(k, n)
        level = 0.05 if k in (0, n) else 0.025
        exact = (0.0 if k == 0 else beta.ppf(level, k, n - k + 1), 1.0 if k == n else beta.ppf(1 - level, k + 1, n - k))
        assert low - 1e-12 <= exact[0] < low + 1.000001e-6, (k, n)
        assert high + 1e-12 >= exact[1] > high - 1.000001e-6, (k, n)


def test_known_bounds_are_exact() -> None:
    """0 of 60 bounds the rate at 4.9 %, 0 of 2 at 78 %; ties with six decimals are not rounded further."""
    assert verify.bounds(0, 60) == (0.0, 0.048703)
    assert verify.bounds(0, 2) == (0.0, 0.776394)
    assert verify.bounds(0, 1) == (0.0, 0.95)
    assert verify.bounds(1, 1) == (0.05, 1.0)
    assert verify.bounds(0, 0) == (0.0, 1.0)


# Verdicts ------------------------------------------------------------------------------------------------------------

DIVERGING = ("control_prompt", "control_seed", "control_temperature")


def test_a_faultless_server_is_identical_under_every_condition(everything: Path) -> None:
    """Controls diverge, without_logprobs is token-identical by nature, everything else is identical."""
    found = report(everything)
    assert found["exit"] == 0
    assert found["unchecked"] == {}
    other = dict.fromkeys(DIVERGING, "divergent") | {"without_logprobs": "token-identical"}
    assert verdicts(found) == {name: other.get(name, "identical") for name in verdicts(found)}
    assert len(verdicts(found)) == 23
    assert all(cell["qualifiers"] == [] and cell["usable"] == cell["planned"] for cell in cells(found).values())
    assert {row["status"] for row in found["findings"]["instrument"]} == {"held"}
    assert [(row["kind"], row["level"], row["waves"]) for row in found["findings"]["waves"]] == [
        *(("greedy", 2, 6), ("greedy", 4, 6), ("seeded", 3, 6))
    ]


CONDITIONS = [
    *("repeat_greedy", "repeat_seeded", "first_request", "other_slot", "concurrent_greedy_c2", "concurrent_greedy_c4"),
    *("concurrent_seeded_c3", "oversubscribed_c10", "wave_repeat", "cross_batch_together", "cross_batch_staggered"),
    *("cache_cold", "cache_warm1", "cache_warm2", "cache_prefix", "idle_neighbour", "stream_vs_whole"),
    *("without_logprobs", "restart"),
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_one_ulp_under_one_condition_is_seen_there_and_nowhere_else(tmp_path: Path, condition: str) -> None:
    """The smallest fault makes its own cell token-identical (tokens: divergent), and of the others none but by rule."""
    found = report(Made(plan(), alter=bent(condition)).write(tmp_path))
    assert found["exit"] == 0
    wanted = dict.fromkeys(verdicts(found), "identical") | dict.fromkeys(DIVERGING, "divergent")
    wanted |= {"without_logprobs": "token-identical", condition: "token-identical"}
    if condition == "without_logprobs":
        wanted[condition] = "divergent"
    if condition == "wave_repeat":
        wanted["wave_repeat"] = "token-identical"
    if condition.startswith("concurrent_"):
        # The wave's repeat is equally steady only if it is bent too; here it is not, so it differs from its wave.
        wanted["wave_repeat"] = "token-identical"
    if condition.startswith("repeat_"):
        seeded = {"concurrent_seeded_c3", "control_seed", "control_temperature"}
        cached = {"cache_cold", "cache_warm1", "cache_warm2", "cache_prefix"}
        greedy = set(wanted) - seeded - {"repeat_greedy", "repeat_seeded", "wave_repeat"}
        wanted |= dict.fromkeys(greedy if condition == "repeat_greedy" else seeded, "unstable")
        assert cached <= greedy
    if condition == "other_slot":
        aside = {name: cell["excluded"]["set aside"] for name, cell in cells(found).items()}
        # Slots 1 and 2 differ alone. Of each prompt: member 1 of two, two of four, two of three, three of ten on eight.
        assert aside["concurrent_greedy_c2"] == 4
        assert aside["concurrent_greedy_c4"] == 8
        assert aside["concurrent_seeded_c3"] == 8
        assert aside["oversubscribed_c10"] == 6
        wanted |= dict.fromkeys([name for name, count in aside.items() if count], "insufficient")
    assert verdicts(found) == wanted
    witness = cells(found)[condition]["witness"]
    if condition == "without_logprobs":
        assert (witness["level"], witness["step"], witness["value"]) == ("token", 3, None)
    else:
        # Under sampling the third of the top-k is the token taken, so that its own logprob moves along.
        rank = -1 if "seeded" in condition else 2
        assert (witness["level"], witness["step"], witness["rank"], witness["ulp"]) == ("logprob", 3, rank, 1)
        assert float.fromhex(witness["value_hex"]) == witness["value"] == one_ulp(witness["reference_value"])
        assert witness["nats"] == witness["value"] - witness["reference_value"]
        assert witness["margin"] == 0.25


def test_a_forced_trial_that_differs_in_a_logprob_is_token_identical(tmp_path: Path) -> None:
    """prefill_vs_decode is compared with the joined stream of its one-token replies too."""
    found = report(Made(plan(), alter=bent("prefill_vs_decode")).write(tmp_path))
    assert verdicts(found)["prefill_vs_decode"] == "token-identical"
    assert cells(found)["prefill_vs_decode"]["logprob_identical"] == 0
    assert cells(found)["prefill_vs_decode"]["witness"]["trial"] == "prefill_vs_decode/a/0/prefixes"


def edited(tmp_path: Path, edit: Callable[[Made], object], **options: JSON) -> JSON:
    """Make the run of every family, edit it, write it; return the report."""
    made = Made(plan(options.pop("conditions", None)), **options)
    edit(made)
    return report(made.write(tmp_path))


def replies(made: Made, prefix: str) -> list[JSON]:
    """Return the replies of the trials whose id begins so."""
    return [line["reply"] for line in made.of("complete") if line["trial"].startswith(prefix)]


def change(prefix: str, **values: JSON) -> Callable[[Made], object]:
    """Return an edit that changes the replies of some trials."""

    def edit(made: Made) -> None:
        found = replies(made, prefix)
        assert found
        for reply in found:
            reply.update({key: value(reply) if callable(value) else value for key, value in values.items()})

    return edit


def shots(when: str, prefix: str, change: Callable[[JSON], object]) -> Callable[[Made], object]:
    """Return an edit that changes the snapshots of some units."""

    def edit(made: Made) -> None:
        found = [line for line in made.of("snapshot", when=when) if line["unit"].startswith(prefix)]
        assert found
        for line in found:
            change(line)

    return edit


def alone(trial: str) -> Callable[[Made], object]:
    """Return an edit by which a member was worked on before all others."""

    def edit(made: Made) -> None:
        line = made.of("complete", trial=trial)[0]
        line.update(first_byte_ns=line["sent_ns"] + 500_000, last_byte_ns=line["sent_ns"] + 500_000)
        line["reply"].update(prompt_ms=0.2, predicted_ms=0.2)

    return edit


def early(made: Made) -> None:
    """Let the neighbours of a staggered wave prefill before their member decodes."""
    for reply in replies(made, "cross_batch_staggered/a/0/w0/")[1:]:
        reply["predicted_ms"] = 100.0


VACUOUS = [
    ("cache", "stream_vs_whole", change("stream_vs_whole/a", cache_n=1, prompt_n=3), "accounting"),
    ("slot", "stream_vs_whole", change("stream_vs_whole/a", id_slot=1), None),
    ("slot", "stream_vs_whole", change("baseline/greedy/a", id_slot=1), None),
    ("windows", "concurrent_greedy_c4", alone("concurrent_greedy_c4/a/0/w0/1"), None),
    ("windows", "wave_repeat", alone("concurrent_greedy_c4/a/0/w1/1"), None),
    ("slots", "concurrent_greedy_c4", change("concurrent_greedy_c4/a/0/w0", id_slot=0), "slot slots"),
    (
        *("busy", "concurrent_greedy_c4"),
        shots("after", "concurrent_greedy_c4/a/0/w0", lambda s: s["metrics"].update(n_busy_slots_per_decode="1.01")),
        None,
    ),
    ("windows", "oversubscribed_c10", change("oversubscribed_c10/a/0/w0/9", predicted_ms=104.0), None),
    ("slots", "oversubscribed_c10", change("oversubscribed_c10/a/0/w0/7", id_slot=6), None),
    ("windows", "cross_batch_together", change("cross_batch_together/a/0/w0/1", predicted_ms=40.0), None),
    ("windows", "cross_batch_staggered", early, None),
    (
        "cache",
        "cache_cold",
        change("cache/long/0/cold", cache_n=2, prompt_n=lambda r: r["tokens_evaluated"] - 2),
        "accounting",
    ),
    ("cache", "cache_warm1", change("cache/long/0/warm1", tokens_evaluated=63), None),
    ("cache", "cache_prefix", change("cache_prefix/long/0/prefix", cache_n=lambda r: r["tokens_evaluated"]), None),
    (
        *("neighbour", "idle_neighbour"),
        shots("before", "idle_neighbour/a/0/member", lambda s: s["slots"].__setitem__(1, [1, False, 0])),
        None,
    ),
    (
        "prefix",
        "prefill_vs_decode",
        change("prefill_vs_decode/a/0/prefixes", tokens_evaluated=9, prompt_n=9),
        "accounting",
    ),
]


@pytest.mark.parametrize(("reason", "condition", "edit", "instead"), VACUOUS)
def test_a_condition_that_did_not_happen_is_vacuous(
    tmp_path: Path, reason: str, condition: str, edit: Callable[[Made], object], instead: str | None
) -> None:
    """Evidence against one proof makes its trials vacuous with that reason, unless an earlier rule names another."""
    found = edited(tmp_path, edit)
    cell = cells(found)[condition]
    if instead == "accounting":
        assert (cell["verdict"], set(cell["reasons"])) == ("tainted", {"accounting"})
    else:
        assert cell["verdict"] == "vacuous"
        assert set(cell["reasons"]) == set((instead or reason).split())
        assert cell["excluded"]["vacuous"] == sum(cell["reasons"].values())


def test_a_prompt_from_the_cache_is_vacuous_without_metrics(tmp_path: Path) -> None:
    """Where no counter can show it, the reply's own numbers still do."""
    found = edited(tmp_path, change("stream_vs_whole/a", cache_n=1, prompt_n=3), metrics=False)
    assert cells(found)["stream_vs_whole"]["reasons"] == {"cache": 1}


def test_surplus_requests_that_did_not_wait_are_vacuous(tmp_path: Path) -> None:
    """The last two of ten on eight slots must begin after the first ended."""

    def edit(made: Made) -> None:
        lines = [line for line in made.of("complete") if line["trial"].startswith("oversubscribed_c10/a/0")]
        for line in lines[4:8]:
            line["reply"]["predicted_ms"] = line["reply"]["prompt_ms"] = 0.5
        for line in lines[8:]:
            line["reply"]["predicted_ms"] = 95.0

    found = edited(tmp_path, edit)
    assert cells(found)["oversubscribed_c10"]["reasons"] == {"windows": 10}


def test_a_request_before_the_first_one_is_no_first_request(tmp_path: Path) -> None:
    """A restart whose process is not new, or is followed by another request, proves nothing."""

    def edit(made: Made) -> None:
        later = made.of("server", phase="restart")[-1]
        later["attested"]["process"] = made.lines[1]["attested"]["process"]
        for line in made.lines[made.lines.index(later) :]:
            if line["line"] == "snapshot":
                line["process"] = later["attested"]["process"]

    found = edited(tmp_path, edit)
    assert cells(found)["restart"]["reasons"] == {"process": 1}


TAINTED = [
    ("idle", shots("before", "stream_vs_whole/a", lambda s: s["slots"].__setitem__(3, [3, True, None]))),
    ("idle", shots("after", "stream_vs_whole/a", lambda s: s["metrics"].update(requests_processing="1"))),
    ("idle", shots("after", "stream_vs_whole/a", lambda s: s["metrics"].update(requests_deferred="x"))),
    ("idle", shots("after", "stream_vs_whole/a", lambda s: s.update(slots=None))),
    ("idle", shots("after", "stream_vs_whole/a", lambda s: s.update(metrics=None))),
    ("idle", shots("before", "stream_vs_whole/a", lambda s: s.update(metrics=None))),
    ("accounting", shots("after", "stream_vs_whole/a", lambda s: s["metrics"].update(tokens_predicted_total="9"))),
    ("accounting", shots("after", "stream_vs_whole/a", lambda s: s["metrics"].update(prompt_tokens_total="nan"))),
    (
        "same server",
        shots("after", "stream_vs_whole/a", lambda s: s.update(process={"start": "7", "media_marker": None})),
    ),
    ("same server", shots("before", "stream_vs_whole/a", lambda s: s.update(props=None))),
]


@pytest.mark.parametrize(("reason", "edit"), TAINTED)
def test_other_traffic_or_another_server_taints(tmp_path: Path, reason: str, edit: Callable[[Made], object]) -> None:
    """A failed check of a unit taints its cell and no other."""
    found = edited(tmp_path, edit)
    assert cells(found)["stream_vs_whole"]["reasons"] == {reason: 1}
    assert [name for name, verdict in verdicts(found).items() if verdict == "tainted"] == ["stream_vs_whole"]


def test_a_tainted_baseline_taints_what_is_compared_with_it(tmp_path: Path) -> None:
    """A trial is as clean as its reference."""
    edit = shots("before", "baseline/greedy/a", lambda s: s["slots"].__setitem__(3, [3, True, None]))
    found = edited(tmp_path, edit)
    assert cells(found)["stream_vs_whole"]["reasons"] == {"idle": 1}
    assert cells(found)["wave_repeat"]["verdict"] == "identical"


def test_a_moved_canary_taints_everything_and_is_inconclusive(tmp_path: Path) -> None:
    """Where the canary's last rows differ in one bit no cell has a verdict: exit 3."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        if trial["id"] == "canary/last":
            steps[0][2][5][1] = one_ulp(steps[0][2][5][1])
        return steps

    found = edited(tmp_path, lambda _: None, alter=alter)
    assert found["exit"] == 3
    assert set(verdicts(found).values()) == {"tainted"}
    assert cells(found)["repeat_greedy"]["reasons"] == {"canary": 6}
    assert found["sentence"].startswith("inconclusive: toy")


def test_a_lost_canary_is_an_incomplete_instrument(tmp_path: Path) -> None:
    """A canary that failed is no evidence, and no taint."""
    failure = {"kind": "status", "message": "500", "body": None}
    found = edited(tmp_path, lambda _: None, fail=lambda trial: failure if trial["id"] == "canary/last" else None)
    assert found["exit"] == 3
    assert verdicts(found)["repeat_greedy"] == "identical"
    row = next(row for row in found["findings"]["instrument"] if row["check"] == "canary")
    assert (row["status"], row["k"], row["n"]) == ("incomplete", 0, 1)


@pytest.mark.parametrize("control", ["control_prompt", "control_seed", "control_temperature"])
def test_a_control_that_does_not_diverge_fails_the_instrument(tmp_path: Path, control: str) -> None:
    """A server that ignores what a control changes makes the run inconclusive."""
    made: JSON = Made(plan([{"name": "repeat_greedy"}, *CONTROLS]))
    steps = dict(made.streams)

    def alter(trial: JSON, own: JSON) -> JSON:
        known = steps.get(("toy", trial["ref"] or ""))
        return json.loads(json.dumps(known)) if trial["family"] == control else own

    found = report(Made(plan([{"name": "repeat_greedy"}, *CONTROLS]), alter=alter).write(tmp_path))
    assert found["exit"] == 3
    status = {row["check"]: row["status"] for row in found["findings"]["instrument"]}
    assert [name for name, value in status.items() if value == "failed"] == [control]


def test_another_prompts_answer_is_cross_talk(tmp_path: Path) -> None:
    """An echo of other text, or a stream that is another prompt's baseline, belongs to another conversation."""
    found = edited(tmp_path / "echo", change("stream_vs_whole/a", prompt_echo="sha256:" + "0" * 64))
    assert verdicts(found)["stream_vs_whole"] == "cross-talk"
    made = Made(plan())
    other = made.streams["toy", "baseline/greedy/b"]

    def alter(trial: JSON, steps: JSON) -> JSON:
        return json.loads(json.dumps(other)) if trial["id"] == "stream_vs_whole/a/0" else steps

    found = edited(tmp_path / "stream", lambda _: None, alter=alter)
    assert verdicts(found)["stream_vs_whole"] == "cross-talk"
    assert verdicts(found)["control_prompt"] == "divergent"


def test_speculation_is_unsupported(tmp_path: Path) -> None:
    """Drafted tokens carry no logprobs, so nothing is said of the cell."""
    found = edited(tmp_path / "draft", change("stream_vs_whole/a", draft_n=1))
    assert verdicts(found)["stream_vs_whole"] == "unsupported"

    def edit(made: Made) -> None:
        reply = replies(made, "stream_vs_whole/a")[0]
        settings = json.loads(made.files.pop(f"facts/{reply['settings'][7:]}.json"))
        reply["settings"] = made.fact({**settings, "post_sampling_probs": True})

    found = edited(tmp_path / "post", edit)
    assert verdicts(found)["stream_vs_whole"] == "unsupported"
    assert found["exit"] == 3


def test_too_few_slots_is_vacuous_and_sends_nothing(tmp_path: Path) -> None:
    """Waves wider than the server are skipped: vacuous for the slots, their repeats too."""
    found = report(Made(plan(), slots=3).write(tmp_path))
    assert found["exit"] == 0
    skipped = {name for name, cell in cells(found).items() if cell["reasons"] == {"slots": cell["planned"]}}
    assert skipped == {"concurrent_greedy_c4"}
    assert cells(found)["wave_repeat"]["reasons"] == {"slots": 8}
    assert verdicts(found)["wave_repeat"] == "vacuous"


def test_a_server_that_is_not_ours_is_not_restarted(tmp_path: Path) -> None:
    """Conditions that need a restart are not run, and that is no fault."""
    found = report(Made(plan(), owned=False).write(tmp_path))
    assert found["exit"] == 0
    assert (verdicts(found)["restart"], verdicts(found)["first_request"]) == ("not run", "not run")
    assert cells(found)["restart"]["excluded"]["failed"] == 2


def test_a_failed_trial_makes_its_cell_insufficient(tmp_path: Path) -> None:
    """A failure counts as not run, and an entry's minimum decides whether the rest is enough."""
    failure = {"kind": "status", "message": "500", "body": None}

    def fail(trial: JSON) -> JSON:
        return failure if trial["id"] == "repeat_greedy/a/0" else None

    found = report(Made(plan(), fail=fail).write(tmp_path / "all"))
    assert verdicts(found)["repeat_greedy"] == "insufficient"
    assert cells(found)["repeat_greedy"]["excluded"]["failed"] == 1
    fewer = plan([{"name": "repeat_greedy", "minimum": 3}, *CONTROLS])
    found = report(Made(fewer, fail=fail).write(tmp_path / "fewer"))
    assert (verdicts(found)["repeat_greedy"], cells(found)["repeat_greedy"]["minimum"]) == ("identical", 3)


def test_seven_steps_are_too_few(tmp_path: Path) -> None:
    """A stream of fewer than 8 steps is short."""
    found = report(Made(plan(SMALL, steps=7)).write(tmp_path))
    assert verdicts(found)["repeat_greedy"] == "insufficient"
    assert cells(found)["repeat_greedy"]["excluded"]["short"] == 2


def test_a_hole_is_identical_to_nothing(tmp_path: Path) -> None:
    """Two equal streams with the same hole are token-identical, and the cell is partial."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        if trial["prompt"] == "b" and trial["family"] in ("baseline", "repeat_greedy") and not trial["sampled"]:
            steps[4] = [steps[4][0], None, []]
        return steps

    found = report(Made(plan([{"name": "repeat_greedy"}, *CONTROLS]), alter=alter).write(tmp_path))
    cell = cells(found)["repeat_greedy"]
    assert (cell["verdict"], cell["qualifiers"]) == ("token-identical", ["partial"])
    assert (cell["logprob_identical"], cell["token_identical"], cell["distinct"]) == (2, 4, 2)
    assert cell["witness"] is None
    top_k = next(row for row in found["findings"]["instrument"] if row["check"] == "top_k")
    assert top_k["status"] == "held"


LACKING: dict[str, Callable[[JSON], JSON]] = {
    "a null in the top-k": lambda step: [step[0], step[1], [*step[2][:-1], [step[2][-1][0], None]]],
    "a short top-k": lambda step: [step[0], step[1], step[2][:-1]],
    "an id twice": lambda step: [step[0], step[1], [*step[2][:-1], step[2][0]]],
    "no top-k, as at a drafted token": lambda step: [step[0], step[1], []],
    "a logprob of its own": lambda step: [step[0], None, step[2]],
}


@pytest.mark.parametrize("what", LACKING)
def test_a_step_that_lacks_anything_is_a_hole(tmp_path: Path, what: str) -> None:
    """What is null, short or twice in both streams alike is equal to nothing, and contradicts nothing."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        if trial["prompt"] == "b" and trial["family"] in ("baseline", "repeat_greedy") and not trial["sampled"]:
            steps[4] = LACKING[what](steps[4])
        return steps

    found = report(Made(plan([{"name": "repeat_greedy"}, *CONTROLS]), alter=alter).write(tmp_path))
    cell = cells(found)["repeat_greedy"]
    assert found["contradictions"] == []
    assert (cell["verdict"], cell["qualifiers"], cell["logprob_identical"]) == ("token-identical", ["partial"], 2)


def test_one_ulp_of_what_is_no_float32_cannot_be_shown(tmp_path: Path) -> None:
    """A baseline's last logprob lies between two float32 values: the check fails, and is not incomplete."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        if trial["family"] == "baseline":
            steps[0][2][-1][1] = -5.1
        return steps

    found = report(Made(plan([{"name": "repeat_greedy"}, *CONTROLS]), alter=alter).write(tmp_path))
    status = {row["check"]: row["status"] for row in found["findings"]["instrument"]}
    assert (found["exit"], status["one_ulp"], status["float32"], status["parse_twice"]) == (
        3,
        "failed",
        "failed",
        "held",
    )


def test_without_endpoints_the_evidence_is_weak(tmp_path: Path) -> None:
    """A server without /metrics and /slots is judged by windows, and every cell says weak."""
    found = report(Made(plan(), metrics=False, show_slots=False).write(tmp_path))
    assert found["exit"] == 0
    assert {tuple(cell["qualifiers"]) for cell in cells(found).values()} == {("weak",)}


def test_counters_beyond_six_digits_are_weak(tmp_path: Path) -> None:
    """Above 999,999 the printed counter cannot show single tokens."""

    def change(line: JSON) -> None:
        line["metrics"]["prompt_tokens_total"] = "1.23457e+06"

    found = edited(tmp_path, shots("after", "stream_vs_whole", change))
    assert cells(found)["stream_vs_whole"]["qualifiers"] == ["weak"]
    assert verdicts(found)["stream_vs_whole"] == "identical"


def test_two_servers_are_pooled(tmp_path: Path) -> None:
    """Each server has its cells; pooled counts add those with a verdict."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        return bent("repeat_greedy")(trial, steps) if trial["server"] == "two" else steps

    found = report(Made(plan(SMALL), servers=("one", "two"), alter=alter).write(tmp_path))
    pooled = {row["condition"]: row for row in found["findings"]["pooled"]}
    assert pooled["repeat_greedy"]["servers"] == {"one": "identical", "two": "token-identical"}
    assert pooled["repeat_greedy"]["usable"] == 8
    assert pooled["repeat_greedy"]["by_trial"]["divergent"] == 4
    assert pooled["concurrent_greedy_c2"]["servers"] == {"one": "identical", "two": "unstable"}


def test_the_three_claims_about_waves(tmp_path: Path) -> None:
    """A wave that agrees with itself but not with the baseline is wave-independent and not batch-invariant."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        if trial["family"] == "concurrent_greedy" and trial["prompt"] == "a":
            steps[2][2][-1][1] = one_ulp(steps[2][2][-1][1])
        if trial["id"] == "concurrent_greedy_c2/b/1/w0/1":
            steps[2][2][-1][1] = one_ulp(steps[2][2][-1][1])
        return steps

    found = report(Made(plan(SMALL), alter=alter).write(tmp_path))
    assert found["findings"]["waves"] == [
        {
            "server": "toy",
            "kind": "greedy",
            "level": 2,
            "waves": 6,
            "repeatable": {"k": 4, "n": 4},
            "wave_independent": {"k": 1, "n": 2},
            "batch_invariant": {"k": 0, "n": 2},
        }
    ]
    by_wave = cells(found)["concurrent_greedy_c2"]["by_wave"]
    assert (by_wave["divergent"], by_wave["n"]) == (3, 4)


def test_the_threshold_is_the_largest_level_below_every_divergence(tmp_path: Path) -> None:
    """One divergent wave at 4 leaves 2 as the threshold, with its bound; where nothing diverged none is left above."""
    found = report(Made(plan(), alter=bent("concurrent_greedy_c4", every=False)).write(tmp_path / "four"))
    assert found["findings"]["thresholds"] == [
        {"server": "toy", "kind": "greedy", "level": 2, "waves": 4, "high": 0.52713, "above": 4},
        {"server": "toy", "kind": "seeded", "level": 3, "waves": 4, "high": 0.52713, "above": None},
    ]
    found = report(Made(plan(SMALL), alter=bent("concurrent_greedy_c2")).write(tmp_path / "none"))
    assert found["findings"]["thresholds"] == [
        {"server": "toy", "kind": "greedy", "level": None, "waves": None, "high": None, "above": 2}
    ]


def test_instrument_faults_are_inconclusive(tmp_path: Path) -> None:
    """A logprob that is no float32, and a top-k that is short, fail the instrument."""

    def alter(trial: JSON, steps: JSON) -> JSON:
        if trial["id"] == "repeat_greedy/a/0":
            steps[1][2][-1][1] -= 0.1
            steps[2][2].pop()
        return steps

    found = report(Made(plan(SMALL), alter=alter).write(tmp_path))
    status = {row["check"]: (row["status"], row["n"] - row["k"]) for row in found["findings"]["instrument"]}
    assert found["exit"] == 3
    assert status["float32"] == ("failed", 1)
    assert status["top_k"] == ("failed", 1)
    assert status["one_ulp"] == status["parse_twice"] == ("held", 0)


# Predictions ---------------------------------------------------------------------------------------------------------


def prediction(**more: JSON) -> JSON:
    """Return a prediction that repeats are identical."""
    return {
        "id": "p",
        "statement": "Repeats are identical.",
        "conditions": ["repeat_greedy"],
        "servers": "*",
        "unit": "cell",
        "measure": "logprob_identical",
        "holds": {"op": "==", "value": 1.0},
        "refuted": {"op": "<", "value": 1.0},
        "minimum": 4,
        "requires": ["control_seed"],
        **more,
    }


PREDICTED = [
    ("holds", {}, "nothing"),
    ("refuted", {}, "repeat_greedy"),
    ("inconclusive", {"minimum": 5}, "nothing"),
    ("inconclusive", {"requires": ["no such check"]}, "nothing"),
    ("not applicable", {"conditions": ["restart"]}, "nothing"),
    ("not applicable", {"servers": ["elsewhere"]}, "nothing"),
    ("holds", {"unit": "pooled", "minimum": 8, "conditions": ["repeat_greedy", "concurrent_greedy_c2"]}, "nothing"),
    ("inconclusive", {"holds": {"op": ">=", "value": 0.0}}, "repeat_greedy"),
    ("inconclusive", {"refuted": {"op": ">=", "value": 0.5}}, "nothing"),
    ("refuted", {"measure": "waves_identical", "conditions": ["concurrent_greedy_c2"]}, "concurrent_greedy_c2"),
    ("holds", {"measure": "token_identical", "conditions": ["concurrent_greedy_c2"]}, "concurrent_greedy_c2"),
    ("inconclusive", {"conditions": ["concurrent_greedy_c2"]}, "repeat_greedy"),
]


@pytest.mark.parametrize(("status", "more", "fault"), PREDICTED)
def test_a_prediction_is_judged_by_its_own_rules(tmp_path: Path, status: str, more: JSON, fault: str) -> None:
    """Holds, refuted, inconclusive and not applicable each follow from the registered rule alone."""
    folder = Made(plan(SMALL), predictions=[prediction(**more)], alter=bent(fault)).write(tmp_path)
    found = report(folder)
    assert found["exit"] == 0
    assert found["findings"]["predictions"][0]["status"] == status
    codes = {"refuted": 1, "inconclusive": 3}
    assert report(folder, "--assert")["exit"] == codes.get(status, 0)


def test_shares_are_compared_exactly() -> None:
    """One of ten is at least 0.1, although no double is."""
    assert verify.meets({"op": ">=", "value": 0.1}, 1, 10)
    assert verify.meets({"op": "==", "value": 0.3}, 3, 10)
    assert not verify.meets({"op": ">", "value": 0.1}, 1, 10)


# Contradictions ------------------------------------------------------------------------------------------------------


def swap(made: Made) -> None:
    """Exchange two solo units that follow each other."""
    places = [
        index for index, line in enumerate(made.lines) if line.get("when") == "before" and "/w" not in line["unit"]
    ]
    first = next(place for place in places if place + 4 in places)
    made.lines[first : first + 8] = [*made.lines[first + 4 : first + 8], *made.lines[first : first + 4]]
    for index, line in enumerate(made.lines):
        line["at_ns"] = 10**12 + index


def drop(kind: str, **wanted: JSON) -> Callable[[Made], object]:
    """Return an edit that drops the first such line."""
    return lambda made: made.lines.remove(made.of(kind, **wanted)[0])


def drop_unit(made: Made) -> None:
    """Leave a unit out, with all its lines."""
    made.lines[:] = [line for line in made.lines if line.get("unit") != "repeat_greedy/a/1"]


def twice(made: Made) -> None:
    """Try a unit again that had succeeded."""
    own = [line for line in made.lines if line.get("unit") == "repeat_greedy/a/1"]
    place = made.lines.index(own[-1]) + 1
    made.lines[place:place] = [{**line, "attempt": 1} for line in own]


def set_line(kind: str, index: int, **values: JSON) -> Callable[[Made], object]:
    """Return an edit that changes one line of a kind."""
    return lambda made: made.of(kind)[index].update(values)


def set_manifest(**values: JSON) -> Callable[[Made], object]:
    """Return an edit that changes the manifest."""
    return lambda made: made.manifest.update(values)


def rename_stream(made: Made) -> None:
    """Move one logprob of a stored stream and give it its new address everywhere."""
    reply = replies(made, "repeat_greedy/a/0")[0]
    data = made.files[f"streams/{reply['logprob'][7:]}.jsonl"]
    lines = [json.loads(line) for line in data.splitlines()]
    lines[1][0] += 1
    reply["logprob"] = made.store("streams", b"".join(map(canonical, lines)), ".jsonl")


def other_seed(made: Made) -> None:
    """Send another seed than the plan dictates."""
    line = made.of("invoke", trial="repeat_greedy/a/0")[0]
    body = json.loads(made.files[f"facts/{line['request'][7:]}.json"])
    line["request"] = made.fact({**body, "seed": body["seed"] + 1})


def overlap(made: Made) -> None:
    """Let a solo request begin before another has ended."""
    before = made.of("snapshot", unit="repeat_greedy/a/0", when="before")[0]
    place = made.lines.index(before)
    moved = made.lines[place : place + 2]
    del made.lines[place : place + 2]
    made.lines[place - 2 : place - 2] = moved


def cut_rows(made: Made) -> None:
    """Cut the last value off a row, and give it its new address."""
    for reply in replies(made, "canary/"):
        data = made.files[f"rows/{reply['rows']['file'][7:]}.f32"]
        reply["rows"]["file"] = made.store("rows", data[:-4], ".f32")


CONTRADICTED = [
    ("order", swap),
    ("order", drop_unit),
    ("attempts", twice),
    ("pairs", drop("complete", trial="repeat_greedy/a/0")),
    ("pairs", drop("invoke", trial="repeat_greedy/a/0")),
    ("pairs", drop("wave")),
    ("pairs", overlap),
    ("requests", other_seed),
    ("requests", set_line("invoke", 3, request="sha256:" + "0" * 64)),
    ("order", set_line("invoke", 3, slot=1)),
    ("order", set_line("invoke", 3, part=1)),
    ("order", set_line("wave", 0, members=["x", "y"])),
    ("order", set_line("wave", 0, delays_ns=[0])),
    ("clock", set_line("invoke", 3, at_ns=5)),
    ("clock", set_line("complete", 3, sent_ns=10**15)),
    ("clock", set_line("complete", 3, last_byte_ns=None)),
    ("lines", lambda made: made.lines.pop()),
    ("lines", lambda made: made.lines.append(made.lines[-1])),
    ("lines", set_line("snapshot", 0, unit="canary/first")),
    ("lines", set_line("server", 0, server="elsewhere")),
    ("shape", set_line("server", 0, phase="begin")),
    ("shape", set_line("invoke", 0, attempt=False)),
    ("shape", set_line("invoke", 0, extra=1)),
    ("shape", lambda made: made.of("invoke")[0].pop("slot")),
    ("shape", set_line("complete", 0, status=200.0)),
    ("shape", set_line("complete", 0, status=2**63)),
    ("shape", set_line("invoke", 0, line="begin ")),
    ("streams", rename_stream),
    ("streams", change("repeat_greedy/a/0", token="sha256:" + "0" * 64)),
    ("streams", change("repeat_greedy/a/0", steps=9)),
    ("streams", change("repeat_greedy/a/0", holes=1)),
    ("streams", change("repeat_greedy/a/0", saturated=1)),
    ("streams", change("repeat_greedy/a/0", logprob=None)),
    ("store", change("repeat_greedy/a/0", settings="sha256:" + "0" * 64)),
    ("store", lambda made: made.fact({"nobody": "names it"})),
    ("rows", cut_rows),
    ("rows", change("canary/last", above_zero=1)),
    ("manifest", set_manifest(registered="sha256:" + "0" * 64)),
    ("manifest", set_manifest(plan="sha256:" + "0" * 64)),
    ("manifest", lambda made: made.manifest["servers"][0]["attested"].update(build_info="b2")),
    ("manifest", lambda made: made.files.update({"registration/NOTES.md": b"more\n"})),
    ("registration", lambda made: made.manifest["registration"]["files"].pop("PREREG.md")),
    ("registration", lambda made: made.manifest["registration"]["files"]["PREREG.md"].update(blob="0" * 40)),
    ("registration", lambda made: made.manifest["registration"].update(digest="sha256:" + "0" * 64)),
    ("prompts", lambda made: made.manifest["prompts"]["toy"].update(d=made.fact({"ids": [1], "text": ""}))),
    ("prompts", lambda made: made.manifest["prompts"]["toy"].update(a=made.fact({"ids": [9], "text": "a"}))),
    ("prompts", lambda made: made.manifest["prompts"]["toy"].pop("a")),
    ("paths", lambda made: made.files.update({"facts/x.json": b"{}\n"})),
]


@pytest.mark.parametrize(("check", "edit"), CONTRADICTED)
def test_a_consistent_edit_is_a_contradiction(tmp_path: Path, check: str, edit: Callable[[Made], object]) -> None:
    """An edit with chain and seal made again is caught by what the record says twice: exit 4, named."""
    made = Made(plan(SMALL))
    edit(made)
    found = report(made.write(tmp_path))
    assert found["exit"] == 4
    assert check in broken(found)
    assert found["sentence"].startswith("contradiction: ")


def test_a_skip_needs_a_reason_that_holds(tmp_path: Path) -> None:
    """A skip for slots on a server that has them is a contradiction."""
    made = Made(plan(SMALL), slots=1)
    for line in made.of("skip"):
        line["available"] = 2
    assert broken(report(made.write(tmp_path))) == {"skips"}


def test_another_plan_than_the_registered_one_must_be_overridden(tmp_path: Path) -> None:
    """A run of another plan is a contradiction, unless the manifest says overridden: then its plan dictates order."""
    made = Made(plan(SMALL))
    made.files["registration/plan.json"] = canonical(plan(SMALL, steps=9))
    assert "registration" in broken(report(made.write(tmp_path)))


# Reading -------------------------------------------------------------------------------------------------------------


def copied(folder: Path, target: Path) -> Path:
    """Copy a run to where it may be damaged."""
    return Path(shutil.copytree(folder, target / "run"))


def test_every_flipped_byte_of_a_file_is_named(small: Path, tmp_path: Path) -> None:
    """One bit in one file of each kind breaks its digest, also behind the last step of a stream."""
    for pattern in ("manifest.json", "plan.json", "history.jsonl", "streams/*", "rows/*", "facts/*", "registration/*"):
        folder = copied(small, tmp_path / pattern.replace("/*", ""))
        path = min(folder.glob(pattern))
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        assert broken(report(folder)) & {"bytes", "json", "shape", "canonical"}, pattern


BAD_JSON = [
    b'{"a":1,"a":1}\n',
    b'{"a":NaN}\n',
    b'{"a":Infinity}\n',
    b'{"a":1e999}\n',
    b'{"a":-1e999}\n',
    b'{"a": 1}\n',
    b'{"b":1,"a":1}\n',
    b'{"a":1}',
    b'{"a":1}\n\n',
    b'{"a":1}\n{"a":1}\n',
    b'{"a":1.50}\n',
    b'{"a":"\\u0041"}\n',
    b'{"a":"\xc3\xa9"}\n',
    b'{"a":"\\/"}\n',
    b'\xef\xbb\xbf{"a":1}\n',
    b"[" * 200_000 + b"\n",
    b'{"a":' + b"9" * 5_000 + b"}\n",
    b'{"a":1E5}\n',
    b"",
    b"nonsense\n",
]


@pytest.mark.parametrize("data", BAD_JSON, ids=range(len(BAD_JSON)))
def test_what_is_not_canonical_json_is_refused(tmp_path: Path, data: bytes) -> None:
    """A fact with another text than the canonical one is refused with 4, whatever its digest."""
    made = Made(plan(SMALL))
    made.store("facts", data, ".json")
    found = report(made.write(tmp_path))
    assert broken(found) <= {"json", "canonical"}
    assert found["exit"] == 4


@pytest.mark.parametrize("name", ["manifest.json", "plan.json", "history.jsonl", "registration/predictions.json"])
@pytest.mark.parametrize(
    "data", [b"[]\n", b"{}\n", b"null\n", b"1\n", b'"x"\n', b"", b"[" * 100_000, b'{"format":1}\n']
)
def test_a_sealed_document_of_another_shape_is_refused(small: Path, tmp_path: Path, name: str, data: bytes) -> None:
    """A document that is something else altogether ends in 4, never in a traceback."""
    folder = copied(small, tmp_path)
    (folder / name).write_bytes(data)
    reseal(folder)
    assert report(folder)["exit"] == 4


@pytest.mark.parametrize("name", ["SHA256SUMS", "DERIVED.SHA256SUMS", "omitted.json", "findings.json"])
@pytest.mark.parametrize("data", [b"", b"\n", b"{}\n", b"x\n", b"\xff\n", b"0" * 64 + b"  ../plan.json\n", b"[1]\n"])
def test_a_damaged_list_is_refused(small: Path, tmp_path: Path, name: str, data: bytes) -> None:
    """Lists are read as strictly as the record."""
    folder = copied(small, tmp_path)
    (folder / name).write_bytes(data)
    if name == "findings.json":
        seal(folder, [name], "DERIVED.SHA256SUMS")
    assert report(folder)["exit"] == 4


def test_paths_do_not_leave_the_folder(small: Path, tmp_path: Path) -> None:
    """Links, strangers, missing files and paths with dots are refused."""

    def damaged(name: str, damage: Callable[[Path], object]) -> set[str]:
        folder = copied(small, tmp_path / name)
        damage(folder)
        return broken(report(folder))

    def link(folder: Path) -> None:
        (folder / "plan.json").rename(tmp_path / "plan.json")
        (folder / "plan.json").symlink_to(tmp_path / "plan.json")

    def folder_link(folder: Path) -> None:
        (folder / "rows").rename(tmp_path / "rows")
        (folder / "rows").symlink_to(tmp_path / "rows")

    def sum_line(path: str) -> Callable[[Path], object]:
        def damage(folder: Path) -> None:
            lines = [*(folder / "SHA256SUMS").read_text().splitlines(), f"{'0' * 64}  {path}"]
            (folder / "SHA256SUMS").write_text(
                "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line[66:]))
            )

        return damage

    assert damaged("link", link) == {"paths"}
    assert damaged("folder", folder_link) == {"paths"}
    assert damaged("fifo", lambda folder: os.mkfifo(folder / "fifo")) == {"paths"}
    assert damaged("stranger", lambda folder: (folder / "notes.txt").write_text("x")) == {"files"}
    assert damaged("findings", lambda folder: (folder / "findings.json").write_text("{}\n")) == {"files"}
    assert damaged("missing", lambda folder: next(folder.glob("streams/*")).unlink()) == {"files"}
    for path in ("../x", "/etc/passwd", "streams/../x", "streams/x.jsonl", "rows/" + "0" * 64, ".x", "SHA256SUMS", ""):
        assert damaged(f"sum{sha(path)}", sum_line(path)) == {"paths"}, path
    assert damaged("twice", sum_line("plan.json")) == {"files"}
    assert damaged("address", sum_line("bodies/" + "1" * 64)) == {"files"}


def test_a_hostile_name_does_not_steer_the_terminal(small: Path, tmp_path: Path) -> None:
    """What a folder holds is printed escaped."""
    folder = copied(small, tmp_path)
    (folder / "\x1b[2J\n").write_text("x")
    done = run_with(sys.executable, str(folder))
    assert done.returncode == 4
    assert "\x1b" not in done.stdout
    assert "\\x1b[2J" in done.stdout


@pytest.mark.parametrize("error", [RecursionError, MemoryError, OverflowError])
def test_input_that_exhausts_the_interpreter_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Exhaustion is the input's fault: 4, not 5."""

    def exhausted(*_: object) -> None:
        raise error

    monkeypatch.setattr(verify, "findings_of", exhausted)
    assert report(small)["exit"] == 4


def test_a_bug_exits_with_5(small: Path, tmp_path: Path) -> None:
    """An unexpected exception ends in 5 with its traceback, never in 1."""
    changed = tmp_path / "verify.py"
    changed.write_text(SOURCE.read_text().replace("def findings_of(run: Run)", "def findings_of(run: Run, extra: int)"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(changed), str(small)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 5
    assert "Traceback" in done.stderr
    assert "bug in verify.py" in done.stderr


# Exit 2 --------------------------------------------------------------------------------------------------------------


def test_what_is_no_run_exits_with_2(tmp_path: Path) -> None:
    """A missing folder and a folder without a manifest are not runs."""
    assert report(tmp_path / "missing")["exit"] == 2
    assert "not a run" in report(tmp_path)["sentence"]


@pytest.mark.parametrize("kind", ["weather"])
def test_another_kind_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    """A kind of run that this verifier does not know is named, with exit 2."""
    made = Made(plan(SMALL))
    made.manifest["kind"] = kind
    found = report(made.write(tmp_path))
    assert (found["exit"], found["sentence"]) == (2, f"kind {kind} is not known to this verifier")


def test_another_format_is_refused_with_both_names(tmp_path: Path) -> None:
    """A newer format is refused naming it and the one that is read."""
    made = Made(plan(SMALL))
    made.manifest["format"] = 2
    found = report(made.write(tmp_path))
    assert broken(found) == {"format"}
    assert "format 2, this verifier reads 1" in found["sentence"]


def test_an_unsealed_run_says_what_is_left(tmp_path: Path) -> None:
    """Unsealed is 2, with the finished attempts and how far the chain holds."""
    folder = Made(plan(SMALL)).write(tmp_path, sealed=False)
    finished = sum(b'"line":"complete"' in line for line in (folder / "history.jsonl").read_bytes().splitlines())
    found = report(folder)
    assert found["exit"] == 2
    assert found["sentence"] == f"unsealed: {finished} finished attempts are readable, the chain holds to the end"
    with (folder / "history.jsonl").open("ab") as file:
        file.write(b'{"at_ns":1')
    assert report(folder)["sentence"].endswith("the chain holds to the end, behind it 10 bytes of an incomplete line")
    data = (folder / "history.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "history.jsonl").write_bytes(b"".join(data[:9] + data[10:]))
    assert "the chain holds only up to line 9" in report(folder)["sentence"]
    (folder / "history.jsonl").unlink()
    assert report(folder)["sentence"].startswith("unsealed: 0 finished")


# Resumed runs --------------------------------------------------------------------------------------------------------


def test_an_unknown_attempt_is_tried_again_after_a_resume(tmp_path: Path) -> None:
    """An invoke without complete stays in the record, and the next attempt decides."""
    made = Made(plan(SMALL))
    own = [line for line in made.lines if line.get("unit") == "repeat_greedy/a/0"]
    place = made.lines.index(own[0])
    start = own[0]["at_ns"]
    made.lines[place:place] = [
        *own[:2],
        {"line": "resume", "at_ns": start, "process": 1, "wall_ns": 1, "cut": 3},
        {**made.lines[1], "at_ns": start},
    ]
    made.lines[place + 4 : place + 8] = [{**line, "attempt": 1} for line in own]
    found = report(made.write(tmp_path))
    assert found["exit"] == 0, found["contradictions"]
    assert verdicts(found)["repeat_greedy"] == "identical"


@pytest.mark.parametrize(("seen", "code"), [(False, 0), (True, 4)])
def test_a_unit_that_was_not_looked_at_afterwards_is_tried_again(tmp_path: Path, seen: bool, code: int) -> None:
    """Complete and without its snapshot `after` it is unfinished; with it a second attempt was not due."""
    made = Made(plan(SMALL))
    own = [line for line in made.lines if line.get("unit") == "repeat_greedy/a/0"]
    place = made.lines.index(own[0])
    start = own[0]["at_ns"]
    made.lines[place + len(own) - (0 if seen else 1) : place + len(own)] = [
        {"line": "resume", "at_ns": start, "process": 1, "wall_ns": 1, "cut": 0},
        {**made.lines[1], "at_ns": start},
        *({**line, "attempt": 1} for line in own),
    ]
    found = report(made.write(tmp_path))
    assert found["exit"] == code, found["contradictions"]
    assert [one["check"] for one in found["contradictions"]] == (["attempts"] if seen else [])


def test_a_new_process_without_a_resume_taints(tmp_path: Path) -> None:
    """Another process after a change of the server is only explained by a restart or a resume."""
    made = Made(plan(SMALL))
    place = made.lines.index(made.of("snapshot", unit="repeat_greedy/a/0", when="before")[0])
    process = {"start": "999", "media_marker": None}
    server = json.loads(json.dumps(made.lines[1])) | {"phase": "change", "at_ns": made.lines[place]["at_ns"]}
    server["attested"]["process"] = process
    for line in made.lines[place:]:
        if line["line"] == "snapshot":
            line["process"] = process
        if line["line"] == "server":
            line["attested"] = {**line["attested"], "process": process}
    made.lines.insert(place, server)
    assert cells(report(made.write(tmp_path)))["repeat_greedy"]["reasons"]["same server"] >= 1


# Copies, levels, flags -----------------------------------------------------------------------------------------------


def omit(folder: Path, *prefixes: str) -> None:
    """Leave files out of a copy, as an export does."""
    listed = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    left_out = {path: "sha256:" + digest for digest, path in listed if path.startswith(prefixes)}
    for path in left_out:
        (folder / path).unlink()
    (folder / "omitted.json").write_bytes(canonical({"format": 1, "files": left_out}))


def with_findings(folder: Path) -> JSON:
    """Store what the verifier finds as the run's findings."""
    findings = report(folder)["findings"]
    (folder / "findings.json").write_bytes(canonical(findings))
    seal(folder, ["findings.json"], "DERIVED.SHA256SUMS")
    return findings


@pytest.mark.parametrize(
    "prefixes", [("streams/", "rows/"), ("streams/", "rows/", "facts/", "bodies/", "registration/")]
)
def test_an_exported_copy_is_sound_and_says_what_was_not_checked(
    everything: Path, tmp_path: Path, prefixes: tuple[str, ...]
) -> None:
    """Verdicts follow from digests alone; what is left out is counted."""
    folder = copied(everything, tmp_path)
    findings = with_findings(folder)
    omit(folder, *prefixes)
    found = report(folder)
    assert found["exit"] == 0, found["contradictions"]
    assert found["unchecked"]["files left out, streams"] > 10
    assert verdicts(found) == {cell["condition"]: cell["verdict"] for cell in findings["cells"]}


def test_only_what_is_declared_may_be_absent(small: Path, tmp_path: Path) -> None:
    """The plan may never be left out, nor a file under another digest, nor one that is here."""
    folder = copied(small, tmp_path / "plan")
    omit(folder, "plan.json")
    assert broken(report(folder)) == {"files"}
    folder = copied(small, tmp_path / "digest")
    omit(folder, "streams/")
    omitted = json.loads((folder / "omitted.json").read_bytes())
    omitted["files"][next(iter(omitted["files"]))] = "sha256:" + "0" * 64
    (folder / "omitted.json").write_bytes(canonical(omitted))
    assert broken(report(folder)) == {"files"}


def test_a_plan_without_its_words_stands_in_for_the_one_left_out(everything: Path, tmp_path: Path) -> None:
    """A copy may replace plan.json by a plan whose prompts are empty, and not by none, nor beside the sealed one."""
    folder = copied(everything, tmp_path / "run")
    bare = json.loads((folder / "plan.json").read_bytes())
    for prompt in bare["prompts"].values():
        block = "{block}" in json.dumps(prompt)
        prompt.update(ids=None, chat=None, text="{block}" if block else "")
    omit(folder, "streams/", "facts/", "registration/", "plan.json")
    omitted = json.loads((folder / "omitted.json").read_bytes())
    (folder / "omitted.json").write_bytes(canonical({**omitted, "plan": bare}))
    found = report(folder)
    assert found["exit"] == 0, found["contradictions"]
    assert found["unchecked"]["files left out, plan.json"] == 1
    assert verdicts(found) == verdicts(report(everything))
    folder = copied(everything, tmp_path / "beside")
    omit(folder, "streams/")
    omitted = json.loads((folder / "omitted.json").read_bytes())
    (folder / "omitted.json").write_bytes(canonical({**omitted, "plan": bare}))
    assert broken(report(folder)) == {"files"}


def test_the_minimum_of_repeated_waves_follows_that_of_their_level(tmp_path: Path) -> None:
    """An entry that needs 5 of its 8 members needs of one repeated wave in two the half, rounded up."""
    entry = {"name": "concurrent_greedy", "levels": [2, 4], "again": 1, "minimum": 5}
    found = report(Made(plan([entry, *CONTROLS])).write(tmp_path))
    minimum = {name: cell["minimum"] for name, cell in cells(found).items()}
    assert (minimum["concurrent_greedy_c2"], minimum["concurrent_greedy_c4"], minimum["wave_repeat"]) == (5, 5, 6)


def test_at_the_level_of_digests_no_stream_is_read(small: Path, tmp_path: Path) -> None:
    """--level digests does not notice a damaged stream, counts those, and reaches the same verdicts."""
    folder = copied(small, tmp_path)
    next(folder.glob("streams/*")).write_bytes(b"damaged")
    found = report(folder, "--level", "digests")
    assert found["exit"] == 0
    assert found["unchecked"]["files not read, streams"] == len(list(folder.glob("streams/*")))
    assert verdicts(found) == verdicts(report(small))
    assert report(folder)["exit"] == 4


def test_a_deposited_digest_is_compared(small: Path) -> None:
    """--expect accepts the seal's digest and no other."""
    digest = "sha256:" + sha((small / "SHA256SUMS").read_bytes())
    assert report(small, "--expect", digest)["exit"] == 0
    assert broken(report(small, "--expect", "sha256:" + "0" * 64)) == {"expect"}
    with pytest.raises(SystemExit, match="2"):
        verify.main(["--expect", "abc", str(small)])


def test_of_several_runs_the_worst_counts(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A contradiction is worse than a missing folder, which is worse than a sound run."""
    damaged = copied(small, tmp_path)
    (damaged / "notes.txt").write_text("x")
    assert verify.main([str(small), str(tmp_path / "missing")]) == 2
    assert verify.main([str(small), str(tmp_path / "missing"), str(damaged)]) == 4
    assert capsys.readouterr().out.splitlines()[-1].startswith("contradiction: ")


# Findings ------------------------------------------------------------------------------------------------------------


def test_equal_findings_agree_and_reasons_are_free(small: Path, tmp_path: Path) -> None:
    """Findings that say the same are sound; the sentence for people may be any."""
    folder = copied(small, tmp_path)
    findings = with_findings(folder)
    assert report(folder)["exit"] == 0
    assert report(folder)["notes"]["findings.json"] == "compared"
    findings["cells"][0]["reason"] = "because"
    (folder / "findings.json").write_bytes(canonical(findings))
    seal(folder, ["findings.json"], "DERIVED.SHA256SUMS")
    assert report(folder)["exit"] == 0


def paths_of(value: JSON, path: tuple[JSON, ...] = ()) -> list[tuple[JSON, ...]]:
    """Return the path of every leaf of a document."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in paths_of(inner, (*path, key))]
    if isinstance(value, list) and value:
        return [found for index, inner in enumerate(value) for found in paths_of(inner, (*path, index))]
    return [path]


def test_every_field_of_the_findings_is_compared(tmp_path: Path) -> None:
    """Another value in any field but the sentences for people is named with both values."""
    made = Made(plan(SMALL), predictions=[prediction()], alter=bent("concurrent_greedy_c2", every=False))
    folder = made.write(tmp_path)
    findings = with_findings(folder)
    missed = []
    for path in paths_of(findings):
        other = json.loads(json.dumps(findings))
        place = other
        for step in path[:-1]:
            place = place[step]
        old = place[path[-1]]
        place[path[-1]] = not old if isinstance(old, bool) else old + 1 if isinstance(old, (int, float)) else [old, "x"]
        ledger = verify.Ledger()
        verify.differ("", findings, other, set(), ledger)
        if not ledger.contradictions and path[-1] not in ("reason", "consequence"):
            missed.append(path)
    assert missed == []


def test_a_disagreement_is_named_with_cell_field_and_both_values(small: Path, tmp_path: Path) -> None:
    """Who claims one more usable trial is told where, what is there, and what is here."""
    folder = copied(small, tmp_path)
    findings = with_findings(folder)
    cell = next(cell for cell in findings["cells"] if cell["condition"] == "repeat_greedy")
    cell["usable"] = 5
    (folder / "findings.json").write_bytes(canonical(findings))
    seal(folder, ["findings.json"], "DERIVED.SHA256SUMS")
    found = report(folder)
    assert [one["message"] for one in found["contradictions"]] == [
        "findings.json: cells toy repeat_greedy: usable: 5 there, 4 here"
    ]


# Registration in git -------------------------------------------------------------------------------------------------


def commit(folder: Path, message: str) -> str:
    """Commit everything; return the commit."""
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", message], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("fault", ["", "mixed", "later", "edited"])
def test_git_shows_that_the_registration_came_first(tmp_path: Path, fault: str) -> None:
    """--repo holds where the commit is an ancestor, unchanged and alone; else it names what is wrong."""
    made, repository = Made(plan(SMALL)), tmp_path / "repository"
    registered = repository / "prereg" / "toy"
    registered.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "program.py").write_text("1\n")
    zero = commit(repository, "program")
    for path, data in made.files.items():
        if path.startswith("registration/"):
            (registered / path[13:]).write_bytes(data)
    if fault == "mixed":
        (repository / "program.py").write_text("2\n")
    first = commit(repository, "registration")
    (repository / "program.py").write_text("3\n")
    if fault == "edited":
        (registered / "PREREG.md").write_text("other\n")
    second = commit(repository, "program again")
    made.manifest["registration"]["commit"] = first
    made.manifest["program"]["commit"] = zero if fault == "later" else second
    folder = made.write(tmp_path / "run")
    assert report(folder)["notes"]["repository"] == "not checked (no --repo)"
    found = report(folder, "--repo", str(repository))
    assert found["notes"]["repository"] == "checked"
    assert broken(found) == ({"repository"} if fault else set())
    (tmp_path / "empty").mkdir()
    subprocess.run(["git", "init", "-q", str(tmp_path / "empty")], check=True)
    assert "not checked" in report(folder, "--repo", str(tmp_path / "empty"))["notes"]["repository"]


# The table of checks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "edit"), [("requests", other_seed), ("clock", set_line("complete", 3, sent_ns=10**15))]
)
def test_a_disabled_check_lets_its_fault_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, edit: Callable[[Made], object]
) -> None:
    """Each check is what catches its fault: without it the run reads as sound."""
    made = Made(plan(SMALL))
    edit(made)
    if check == "requests":
        made.files = {
            path: data for path, data in made.files.items() if b'"seed"' not in data or path.startswith("facts")
        }
    folder = made.write(tmp_path)
    assert check in broken(report(folder))
    monkeypatch.setattr(verify, "DISABLED", {check, "store"})
    assert report(folder)["exit"] in (0, 3)


def test_every_check_is_met_by_some_run(everything: Path) -> None:
    """No name of the table is dead: a faultless run counts all but those that need a flag, a skip or findings."""
    counts = {check["name"]: check["count"] for check in report(everything)["checks"]}
    assert {name for name, count in counts.items() if not count} == {"expect", "repository", "skips", "findings"}
    assert f32(0.1) != 0.1
    assert VOCABULARY == 512


def changed(value: JSON) -> Iterator[JSON]:
    """Yield a document with one value changed, or one key gone or new, at every place."""
    if isinstance(value, dict):
        yield {**value, "novel": 1}
        for key, own in value.items():
            yield {name: one for name, one in value.items() if name != key}
            yield from ({**value, key: other} for other in changed(own))
    elif isinstance(value, list):
        yield [*value, {"novel": 1}]
        for place, own in enumerate(value[:2]):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in changed(own))
    yield from (None, True, 1, -1.5, 2**70, "", "sha256:" + "0" * 64, [], [1], {})


def test_the_fast_test_of_a_line_says_what_the_slow_one_says(everything: Path) -> None:
    """On a line of every sort of a whole history, as it is and with one thing changed at every place."""
    lines = [json.loads(line) for line in (everything / "history.jsonl").read_bytes().splitlines()]
    verifier = load()
    examples = {line["line"]: line for line in lines}
    said: Counter[bool] = Counter()
    for kind, line in examples.items():
        shape = verifier.SHAPES[kind]
        fits = verifier.fitting(shape)
        for one in [line, *changed(line)]:
            slow = verifier.misfit(one, shape) is None
            assert fits(one) == slow, (kind, one)
            said[slow] += 1
    assert set(examples) >= {"begin", "server", "snapshot", "wave", "invoke", "complete", "end"}
    assert min(said[True], said[False]) > len(examples)


# Each a pattern in a line and what is put there: mostly the same value, otherwise written.
SPELLINGS = (
    *((rb'"n":', b'"n":' + space) for space in (b" ", b"\t", b"\r", b"\n")),
    *((rb'"n":\d+', b'"n":' + number) for number in (b"-0", b"007", b"1.0", b"1e2", b"NaN", b"-Infinity", b"1e999")),
    *((rb'"n":\d+', b'"n":' + b"9" * length) for length in (19, 20, 21, 5000)),
    *((rb'_ms":[^,]+', b'_ms":' + number) for number in (b"0.10", b"1E-7", b"1e-07", b"-0.0", b"2", b"-0", b"NaN")),
    *((rb'"(?=sha256:|server":)', b'"' + sign) for sign in (b" ", b"\x7f", b"\x01", b"\xc3\xa9", rb"\\u0061", rb"\\/")),
    *((rb'"server":"', rb'"server":"' + sign) for sign in (b" ", b"\x7f", b"\x01", b"\xc3\xa9", rb"\\u0061", rb"\\/")),
    *((rb'"server":"', rb'"server":"' + sign) for sign in (b"-0,", rb"\\\"", rb"\\ud83d\\ude00", rb"\\ud83d")),
    (rb'("n":\d+)', rb"\1,\1"),
    (rb'("steps":\d+)', rb"\1,\1"),
    (rb'\{("at_ns":\d+),(.*)\}', rb"{\2,\1}"),
    (rb'\{("above_zero":\d+),("cache_n":\w+)', rb"{\2,\1"),
    (rb'"line":"(\w+)"', rb'"line":["\1"]'),
    (rb'"line":"(\w+)"', b'"line":null'),
    (rb"\}\n", b"} \n"),
    (rb"\}\n", b"}x\n"),
    (rb"\}\n", b"}"),
    (rb"\}\n", b"\n"),
    (rb".*", b""),
    *((rb"[^\n]+", document) for document in (b"[]", b"null", b"{}", b'"x"', b"-0", b"1", b"[" * 100_000)),
)


def test_a_line_is_read_at_once_only_where_reading_it_step_by_step_would_say_the_same(everything: Path) -> None:
    """A line of every sort, as it is, written otherwise, and with any byte another: value, refusal and counts."""
    verifier = load()
    lines = (everything / "history.jsonl").read_bytes().splitlines(keepends=True)
    examples = list({json.loads(line)["line"]: line for line in lines}.values())
    tests = {kind: verifier.fitting(shape) for kind, shape in verifier.SHAPES.items()}

    def said(raw: bytes, fitting: JSON) -> JSON:
        ledger = verifier.Ledger()
        walk = SimpleNamespace(ledger=ledger, fitting=fitting, shapes=verifier.SHAPES)
        try:
            return json.dumps(verifier.Walk.read(walk, raw, "here")), dict(ledger.counts)
        except verifier.RefusedError as refusal:
            return refusal.args, dict(ledger.counts)

    chance = random.Random(1)  # noqa: S311 - repeatable, not secret
    others = [re.sub(pattern, new, raw, count=1) for raw in examples for pattern, new in SPELLINGS]
    for raw in examples * 100:
        at = chance.randrange(len(raw))
        others.append(raw[:at] + bytes([chance.randrange(128)]) + raw[at + 1 :])
    refused: Counter[bool] = Counter()
    for raw in (*lines, *others):
        found = said(raw, tests)
        assert found == said(raw, {}), raw
        refused[isinstance(found[0], tuple)] += 1
    assert all(tests[kind](verifier.plain(raw)) for kind, raw in zip(map(kind_of, examples), examples, strict=True))
    assert min(refused[True], refused[False]) > len(examples)


def kind_of(raw: bytes) -> str:
    """Return what sort of line it is."""
    return str(json.loads(raw)["line"])
