"""A run that was interrupted, taken up again: what was finished stays, the rest is done, nothing else is written."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.analyse import trials
from audit.capture import Progress
from audit.errors import DeterminismError, EvidenceError, ServerError, UsageError
from audit.fake import FakeSettings, FakeThread
from audit.plan import Plan
from audit.resume import resume
from audit.sitting import Target
from audit.store import Run, RunWriter
from audit.unsealed import Unsealed
from tests.integration.auditing import Owner, fake_of, judge, lines, plan_of, run, target, verify
from tests.integration.test_capture import ALONE, CACHE, CONTROL_NAMES, REPEATS

# Solo blocks, one of several solo units, two waves in a block, a trial of many requests.
BLOCKS = plan_of(
    REPEATS,
    {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2], "again": 1},
    CACHE,
    {"name": "prefill_vs_decode", "prompts": ["b"]},
    controls=False,
)
COLUMNS = ["trial", "logprob", "token", "reference_logprob", "reference_token", "steps", "holes"]


def taken_up(folder: Path, *targets: Target, stop_after: int = 10**9) -> str | None:
    """Resume a run; stop it again after so many units."""
    asked = iter(range(10**9))
    return asyncio.run(resume(folder, list(targets), report=lambda _: None, stopped=lambda: next(asked) >= stop_after))


def stopped_after(folder: Path, plan: Plan, units: int, *targets: Target) -> None:
    """Run a plan and stop it after so many units."""
    asked = iter(range(10**9))
    assert run(folder, plan, *targets, stopped=lambda: next(asked) >= units) is None


def digests(folder: Path) -> list[dict[str, Any]]:
    """Return what each measured trial of a sealed run gave."""
    table = trials(Run.open(folder))[COLUMNS].astype(object)
    return [
        {str(key): value for key, value in row.items()} for row in table.where(table.notna(), None).to_dict("records")
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def completed(folder: Path) -> list[str]:
    """Return each trial that has a reply, once a request."""
    return [line["trial"] for line in lines(folder, "complete") if line["reply"] is not None]


def unseal(folder: Path) -> None:
    """Take the seal away and what follows from it."""
    for name in ("SHA256SUMS", "findings.json", "cells.csv", "DERIVED.SHA256SUMS"):
        (folder / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeThread]:
    """Return a server of four slots."""
    with fake_of(slots=4, step_ms=0.0) as server:
        yield server


@pytest.fixture(scope="module")
def whole(fake: FakeThread, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sealed run of BLOCKS that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(folder, BLOCKS, target(fake.url)) is not None
    return folder


def test_a_run_that_is_stopped_after_any_unit_goes_on_behind_it(tmp_path: Path, fake: FakeThread) -> None:
    """Each trial once, none of them again, the same digests, one resume line that says that nothing was cut."""
    run(tmp_path / "undisturbed", ALONE, target(fake.url))
    units = completed(tmp_path / "undisturbed")
    for count in (0, 1, 5, len(units) - 1):
        folder = tmp_path / str(count)
        stopped_after(folder, ALONE, count, target(fake.url))
        seal = taken_up(folder, target(fake.url))
        assert seal is not None
        assert completed(folder) == units
        (line,) = lines(folder, "resume")
        assert (line["process"], line["cut"]) == (1, 0)
        assert digests(folder) == digests(tmp_path / "undisturbed")
    assert judge(tmp_path / "5").document["sound"] is True


def test_a_run_may_be_stopped_and_taken_up_many_times(tmp_path: Path, fake: FakeThread) -> None:
    """Three units a process: processes are numbered, and the chain goes through all of them."""
    stopped_after(tmp_path / "run", ALONE, 1, target(fake.url))
    count = 1
    while taken_up(tmp_path / "run", target(fake.url), stop_after=3) is None:
        count += 1
    assert [line["process"] for line in lines(tmp_path / "run", "resume")] == list(range(1, count + 1))
    assert judge(tmp_path / "run").document["sound"] is True


@settings(max_examples=12)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_history_that_is_cut_at_any_byte_is_taken_up(
    fake: FakeThread, whole: Path, tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    """Whatever the last whole line is, the run is finished, verifies, and gives what the undisturbed one gave."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    shutil.copytree(whole, folder)
    unseal(folder)
    data = (folder / "history.jsonl").read_bytes()
    kept = data[: int(share * len(data))]
    (folder / "history.jsonl").write_bytes(kept)
    assert taken_up(folder, target(fake.url)) is not None
    code, report = verify(folder)
    assert (code, report["contradictions"]) == (verify(whole)[0], [])
    assert digests(folder) == digests(whole)
    whole_lines = kept[: kept.rfind(b"\n") + 1]
    assert (folder / "history.jsonl").read_bytes().startswith(whole_lines)
    if whole_lines:
        (line,) = lines(folder, "resume")
        assert line["cut"] == len(kept) - len(whole_lines)


def cut_behind(folder: Path, kind: str, **wanted: Any) -> None:  # noqa: ANN401 - any field of a line
    """Cut the history right behind the first line of a kind with these fields."""
    kept = []
    for data in (folder / "history.jsonl").read_bytes().splitlines(keepends=True):
        line = json.loads(data)
        kept.append(data)
        if line["line"] == kind and all(line[key] == value for key, value in wanted.items()):
            break
    else:
        raise AssertionError(f"no {kind} line with {wanted}")
    (folder / "history.jsonl").write_bytes(b"".join(kept))


def test_an_unknown_request_stays_and_is_sent_again_as_the_next_attempt(
    tmp_path: Path, fake: FakeThread, whole: Path
) -> None:
    """An invoke without complete: attempt 1 comes after a snapshot of an idle server, and decides."""
    shutil.copytree(whole, tmp_path / "run")
    unseal(tmp_path / "run")
    cut_behind(tmp_path / "run", "invoke", trial="repeat_greedy/a/1")
    taken_up(tmp_path / "run", target(fake.url))
    sent = [line["attempt"] for line in lines(tmp_path / "run", "invoke") if line["trial"] == "repeat_greedy/a/1"]
    assert sent == [0, 1]
    assert completed(tmp_path / "run").count("repeat_greedy/a/1") == 1
    (resumed,) = lines(tmp_path / "run", "resume")
    after = [line for line in lines(tmp_path / "run", "snapshot") if line["n"] > resumed["n"]]
    assert after[0]["when"] == "start"
    assert not any(busy for _, busy, _ in after[0]["slots"])
    assert verify(tmp_path / "run")[1]["contradictions"] == []


@pytest.mark.parametrize("member", [0, 1])
def test_a_wave_comes_again_whole_and_with_it_its_block(
    tmp_path: Path, fake: FakeThread, whole: Path, member: int
) -> None:
    """Cut behind a member's reply in the second wave: both waves of the block come again, every member of each."""
    shutil.copytree(whole, tmp_path / "run")
    unseal(tmp_path / "run")
    block = "concurrent_greedy_c2/a/0"
    cut_behind(tmp_path / "run", "invoke", trial=f"{block}/w1/{member}")
    taken_up(tmp_path / "run", target(fake.url))
    waves = [(line["unit"], line["attempt"]) for line in lines(tmp_path / "run", "wave")]
    assert waves == [(f"{block}/w0", 0), (f"{block}/w1", 0), (f"{block}/w0", 1), (f"{block}/w1", 1)]
    again = [line["trial"] for line in lines(tmp_path / "run", "invoke") if line["attempt"] == 1]
    assert again == [f"{block}/w{wave}/{one}" for wave in (0, 1) for one in (0, 1)]
    assert verify(tmp_path / "run")[1]["contradictions"] == []


def test_a_wave_that_is_tried_again_in_part_contradicts(tmp_path: Path, fake: FakeThread, whole: Path) -> None:
    """The verifier refuses a block whose units come from two processes."""
    shutil.copytree(whole, tmp_path / "run")
    unseal(tmp_path / "run")
    cut_behind(tmp_path / "run", "snapshot", unit="cache/story/0/warm1", when="after")

    taken_up(tmp_path / "run", target(fake.url))
    unseal(tmp_path / "run")
    # The second half of the block again, by a process that did not begin it.
    path = tmp_path / "run" / "history.jsonl"
    kept = [json.loads(data) for data in path.read_bytes().splitlines()]
    resumed = next(line["n"] for line in kept if line["line"] == "resume")
    early = [f"cache/story/0/{name}" for name in ("opener", "cold", "warm1")]
    kept = [line for line in kept if not (line["n"] > resumed and line.get("unit") in early)]
    relink(tmp_path / "run", kept)
    code, report = verify(tmp_path / "run")
    assert code == 4
    assert any("only a part was tried again" in str(found) for found in report["contradictions"])


def relink(folder: Path, history: list[dict[str, Any]]) -> None:
    """Write a history whose numbers and chain are right, and seal it."""
    from audit.files import files, sums
    from audit.stream import canonical, digest

    prev, data = digest((folder / "manifest.json").read_bytes()), b""
    for number, line in enumerate(history):
        one = canonical({**line, "n": number, "prev": prev})
        data, prev = data + one, digest(one)
    (folder / "history.jsonl").write_bytes(data)
    (folder / "SHA256SUMS").write_bytes(sums(folder, files(folder)))


def test_a_new_process_of_the_same_server_takes_canary_and_baselines_again(tmp_path: Path) -> None:
    """The server restarted while the run lay: recorded, canary and baselines come again, the rest goes on."""
    with fake_of(slots=4, step_ms=0.0) as fake:
        stopped_after(tmp_path / "run", ALONE, 6, target(fake.url))
        done = completed(tmp_path / "run")
        fake.restart()
        assert taken_up(tmp_path / "run", target(fake.url)) is not None
    (resumed,) = lines(tmp_path / "run", "resume")
    after = [line["trial"] for line in lines(tmp_path / "run", "invoke") if line["n"] > resumed["n"]]
    fixed = [name for name in done if name.startswith(("canary", "baseline"))]
    assert after[: len(fixed)] == fixed
    assert not set(after) & set(done) - set(fixed)
    first, second = [line for line in lines(tmp_path / "run", "server") if line["phase"] == "start"]
    assert first["attested"]["process"] != second["attested"]["process"]
    found = judge(tmp_path / "run")
    assert found.document["sound"] is True
    assert {found.verdicts[name] for name in found.verdicts if name not in CONTROL_NAMES} == {"identical"}


def test_a_server_whose_numbers_changed_while_the_run_lay_is_noticed_by_its_canary(tmp_path: Path) -> None:
    """Another model that says the same of itself: nothing is refused, and nothing is identical or divergent either."""
    with fake_of(slots=4, step_ms=0.0) as fake:
        stopped_after(tmp_path / "run", ALONE, 8, target(fake.url))
    with fake_of(slots=4, step_ms=0.0, seed=1) as other:
        assert taken_up(tmp_path / "run", target(other.url)) is not None
    found = judge(tmp_path / "run")
    assert found.document["sound"] is False
    assert set(found.verdicts.values()) == {"tainted"}
    assert found.check("canary") == ("failed", 0, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slots": 5}, "slots was 4, is 5"),
        ({"ctx_per_slot": 512}, "n_ctx was 1024, is 512"),
        ({"build_info": "b1-fake"}, "build_info was 'b0-fake', is 'b1-fake'"),
        ({"model_name": "other"}, "model was 'fake-512', is 'other'"),
        ({"vocabulary": 500}, "vocabulary was 512, is 500"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_server_that_is_another_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """Slots, context, build, model, vocabulary: the message has both values, and the folder every byte it had."""
    with fake_of(step_ms=0.0, slots=4) as fake:
        stopped_after(tmp_path / "run", ALONE, 3, target(fake.url))
    before = contents(tmp_path / "run")
    with fake_of(step_ms=0.0, **{"slots": 4, **change}) as other, pytest.raises(ServerError) as caught:
        taken_up(tmp_path / "run", target(other.url))
    assert words in caught.value.message
    assert contents(tmp_path / "run") == before
    with fake_of(step_ms=0.0, slots=4) as again:
        assert taken_up(tmp_path / "run", target(again.url)) is not None
    assert judge(tmp_path / "run").document["sound"] is True


def test_what_is_declared_must_stay_and_a_port_may_change(tmp_path: Path, fake: FakeThread) -> None:
    """Arguments, model and library digests are what the operator declares; the difference is named by its place."""
    libraries = [{"name": "libggml.so", "sha256": "0" * 64}]
    declared = {
        "argv": ["llama-server", "--port", "8080", "-np", "4"],
        "libraries": libraries,
        "model_sha256": "1" * 64,
    }
    stopped_after(tmp_path / "run", ALONE, 3, target(fake.url, declaration=declared))
    for change, words in (
        ({"argv": ["llama-server", "--port", "8080", "-np", "5"]}, "declaration.argv[2] was '4', is '5'"),
        ({"libraries": [{"name": "libggml.so", "sha256": "2" * 64}]}, "declaration.libraries[0].sha256 was '000"),
        ({"model_sha256": "3" * 64}, "declaration.model_sha256 was '111"),
    ):
        with pytest.raises(ServerError) as caught:
            taken_up(tmp_path / "run", target(fake.url, declaration={**declared, **change}))
        assert words in caught.value.message
    with pytest.raises(ServerError, match=r"declaration was .*, is None"):
        taken_up(tmp_path / "run", target(fake.url))
    argv = ["llama-server", "--port", "9090", "-np", "4"]
    assert taken_up(tmp_path / "run", target(fake.url, declaration={**declared, "argv": argv})) is not None
    assert verify(tmp_path / "run")[0] == 0


def test_the_servers_of_a_resumed_run_are_those_that_it_began_with(tmp_path: Path, fake: FakeThread) -> None:
    """The same labels, owned or not as they were."""
    stopped_after(tmp_path / "run", ALONE, 3, target(fake.url))
    for targets, words in (
        ([target(fake.url, "t")], "the run has the servers s, given are t"),
        ([], "the run has the servers s, given are none"),
        ([target(fake.url), target(fake.url)], "given are s, s"),
        ([target(fake.url, owned=Owner(fake))], "s is of --server in this run"),
    ):
        with pytest.raises(UsageError) as caught:
            taken_up(tmp_path / "run", *targets)
        assert words in caught.value.message


def test_two_servers_are_taken_up_where_each_was_left(tmp_path: Path, fake: FakeThread) -> None:
    """The first is finished and is not asked again; the second goes on in its middle."""
    count = 0

    def count_units(progress: Progress) -> None:
        nonlocal count
        count += progress.server == "one"

    with fake_of(slots=4, step_ms=0.0) as other:
        both = [target(fake.url, "one"), target(other.url, "two")]
        run(tmp_path / "undisturbed", ALONE, *both, report=count_units)
        stopped_after(tmp_path / "run", ALONE, count + 3, *both)
        assert taken_up(tmp_path / "run", *both) is not None
    (resumed,) = lines(tmp_path / "run", "resume")
    assert {line.get("server") for line in lines(tmp_path / "run", "invoke") if line["n"] > resumed["n"]} == {"two"}
    assert completed(tmp_path / "run") == completed(tmp_path / "undisturbed")
    assert judge(tmp_path / "run").document["sound"] is True


def test_an_owned_server_is_taken_up_as_a_new_process(tmp_path: Path) -> None:
    """First requests, restarts and the canary behave as in an undisturbed run, wherever the run was left."""
    plan = plan_of(
        {"name": "first_request", "prompts": ["a"], "count": 2},
        REPEATS,
        {"name": "restart", "prompts": ["a"], "count": 2},
    )
    for count in (0, 1, 2, 5, 11):
        folder = tmp_path / str(count)
        with fake_of(slots=4, step_ms=0.0) as fake:
            owned = target(fake.url, owned=Owner(fake))
            stopped_after(folder, plan, count, owned)
            fake.restart()
            assert taken_up(folder, owned) is not None
        found = judge(folder)
        assert found.document["sound"] is True, count
        assert (found.verdicts["first_request"], found.verdicts["restart"]) == ("identical", "identical")
        assert (found.cell("first_request")["usable"], found.cell("restart")["usable"]) == (2, 2)


def test_trials_that_failed_are_tried_again_by_a_resume_alone(tmp_path: Path) -> None:
    """The server dies in the middle and comes back on its port: what failed has a second attempt, the rest has none."""
    fake = fake_of(slots=4, step_ms=0.0)
    with ExitStack() as stack:
        stack.enter_context(fake)
        port = int(fake.url.rsplit(":", 1)[1])

        def die(progress: Progress) -> None:
            if progress.done == 6:
                stack.close()

        with pytest.raises(ServerError, match="cannot be reached"):
            run(tmp_path / "run", ALONE, target(fake.url), report=die)
    failed = [line["trial"] for line in lines(tmp_path / "run", "complete") if line["failure"] is not None]
    assert failed
    with FakeThread(FakeSettings(slots=4, step_ms=0.0), port=port) as again:
        assert taken_up(tmp_path / "run", target(again.url)) is not None
    numbers = {line["trial"]: line["attempt"] for line in lines(tmp_path / "run", "complete") if line["reply"]}
    assert {numbers[name] for name in failed} == {1}
    assert judge(tmp_path / "run").document["sound"] is True


def test_a_clock_that_was_set_back_changes_nothing(
    tmp_path: Path, fake: FakeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock is one anchor a process; order and durations are the monotonic clock's."""
    stopped_after(tmp_path / "run", ALONE, 4, target(fake.url))
    begun_ns = lines(tmp_path / "run", "begin")[0]["wall_ns"]
    monkeypatch.setattr(time, "time_ns", lambda: begun_ns - 3_600 * 10**9)
    assert taken_up(tmp_path / "run", target(fake.url)) is not None
    assert lines(tmp_path / "run", "resume")[0]["wall_ns"] < begun_ns
    assert judge(tmp_path / "run").document["sound"] is True


# What is refused -----------------------------------------------------------------------------------------------------


def refused(folder: Path, fake: FakeThread, kind: type[DeterminismError], words: str) -> None:
    """Check that a resume is refused in these words, and that every file stays as it is."""
    before = contents(folder)
    with pytest.raises(kind) as caught:
        taken_up(folder, target(fake.url))
    assert words in caught.value.message
    assert contents(folder) == before


def test_a_sealed_run_and_a_folder_without_a_run_are_refused(tmp_path: Path, fake: FakeThread, whole: Path) -> None:
    """Nothing is left to do, or nothing was begun; each says what to do instead."""
    refused(whole, fake, UsageError, "is sealed, so nothing is left to do")
    refused(tmp_path / "nowhere", fake, UsageError, "is no folder of a run")
    RunWriter(tmp_path / "begun").close()
    refused(tmp_path / "begun", fake, UsageError, "never began")


def test_two_processes_never_write_one_run(tmp_path: Path, fake: FakeThread) -> None:
    """A second resume, and a resume beside the run itself, are refused while the first holds the history."""
    stopped_after(tmp_path / "run", ALONE, 3, target(fake.url))
    held = Unsealed(tmp_path / "run")
    refused(tmp_path / "run", fake, UsageError, "another process writes this run")
    held.close()

    def second(progress: Progress) -> None:
        if progress.done == 2:
            with pytest.raises(UsageError, match="another process writes this run"):
                Unsealed(tmp_path / "other")
            with pytest.raises(UsageError, match="is not empty"):
                RunWriter(tmp_path / "other")

    assert run(tmp_path / "other", ALONE, target(fake.url), report=second) is not None
    assert taken_up(tmp_path / "run", target(fake.url)) is not None
    assert judge(tmp_path / "run").document["sound"] is True


def test_a_run_that_has_ended_is_only_sealed(tmp_path: Path, whole: Path) -> None:
    """Killed between its last line and its seal: no server is asked, and the seal is the one that was lost."""
    shutil.copytree(whole, tmp_path / "run")
    seal = (tmp_path / "run" / "SHA256SUMS").read_bytes()
    unseal(tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS.partial").write_bytes(seal[:100])
    assert taken_up(tmp_path / "run", target("http://127.0.0.1:9")) is not None
    assert (tmp_path / "run" / "SHA256SUMS").read_bytes() == seal


def test_what_a_line_names_must_be_there_and_what_none_names_must_be_whole(
    tmp_path: Path, fake: FakeThread, whole: Path
) -> None:
    """A named file that is gone or torn contradicts; an unnamed one that is torn goes, one that is whole stays."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    unseal(folder)
    cut_behind(folder, "invoke", trial="repeat_greedy/a/1")
    named = folder / "facts" / f"{lines(folder, 'invoke')[0]['request'].removeprefix('sha256:')}.json"
    data = named.read_bytes()
    named.write_bytes(data[:10])
    refused(folder, fake, EvidenceError, "holds other bytes than its name says, and a line names it")
    named.unlink()
    refused(folder, fake, EvidenceError, "and no such file is stored")
    named.write_bytes(data)
    torn, partial = folder / "facts" / f"{'0' * 64}.json", folder / "streams" / f"{'1' * 64}.jsonl.partial"
    torn.write_bytes(b"")
    partial.write_bytes(b"half")
    kept = folder / "bodies" / "6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090"
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(b"abc123")
    assert taken_up(folder, target(fake.url)) is not None
    assert (torn.exists(), partial.exists(), kept.exists()) == (False, False, True)
    assert verify(folder)[1]["contradictions"] == []


def test_nothing_outside_the_folder_is_written_through_a_link(tmp_path: Path, fake: FakeThread) -> None:
    """A link in the place of a store, of the history or of a file yet to be written: refused, its target untouched."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    stopped_after(tmp_path / "run", ALONE, 3, target(fake.url))
    for name in ("streams", "history.jsonl", "facts/planted.json", "SHA256SUMS.partial", "bodies"):
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(tmp_path / "run", folder)
        path = folder / name
        if path.is_dir():
            shutil.copytree(path, outside / name)
            shutil.rmtree(path)
            path.symlink_to(outside / name)
        else:
            path.unlink(missing_ok=True)
            path.symlink_to(outside / "file")
        before = contents(outside)
        with pytest.raises(DeterminismError, match=r"is a link|cannot be taken up"):
            taken_up(folder, target(fake.url))
        assert contents(outside) == before


def test_a_file_that_no_run_writes_is_refused(tmp_path: Path, fake: FakeThread) -> None:
    """The seal would have to name it."""
    stopped_after(tmp_path / "run", ALONE, 3, target(fake.url))
    (tmp_path / "run" / "notes.txt").write_text("mine")
    refused(tmp_path / "run", fake, EvidenceError, "notes.txt is no file of an unsealed run")


def test_a_read_only_folder_is_named(tmp_path: Path, fake: FakeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the path and the system's own words; when it can be written again, the run goes on."""
    stopped_after(tmp_path / "run", ALONE, 3, target(fake.url))

    def fail(*_: object, **__: object) -> int:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        refused(tmp_path / "run", fake, UsageError, "history.jsonl: cannot be taken up: Read-only file system")
    assert taken_up(tmp_path / "run", target(fake.url)) is not None


def test_an_edited_history_is_refused(tmp_path: Path, fake: FakeThread) -> None:
    """A whole line that does not follow from the one before is no accident, and nothing is written behind it."""
    stopped_after(tmp_path / "run", ALONE, 3, target(fake.url))
    path = tmp_path / "run" / "history.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"attempt":0', b'"attempt":1', 1))
    refused(tmp_path / "run", fake, EvidenceError, "does not follow the one before")
