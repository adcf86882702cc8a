"""Hostile vectors that no redundancy of the record can catch: the verifier says sound, only a deposited seal tells.

docs/explanation/independence.md lists them; a test keeps the two equal.
"""

from __future__ import annotations

from scripts.forgery import Forgery, one_ulp, sha
from scripts.vectors.table import MS, REPEAT, WAVE, Edit, echo, metric, moved, reply, unseen

# What nothing in the record can catch --------------------------------------------------------------------------------


def invented(run: Forgery) -> None:
    """Move one logprob of an answer by one ULP in every trial that gave it."""
    digest = run.reply("baseline/greedy/a")["logprob"]
    lines = run.steps(digest)
    lines[4][2][-1][1] = one_ulp(lines[4][2][-1][1])
    run.restream(digest, lines)


def hidden(run: Forgery) -> None:
    """Let a control's answer be further away than it was: what moved is whatever the stream says."""
    moved("control_prompt/a/0", token=True)(run)


def other_ids(run: Forgery) -> None:
    """Change a token id of a frozen prompt and of every request that sends it."""
    digest = run.manifest["prompts"]["s"]["a"]
    old = run.json(digest)["ids"]
    new = [old[0] ^ 1, *old[1:]]
    for wanted in {one["request"] for one in run.of("invoke")} | {digest}:
        fact, key = run.json(wanted), "ids" if wanted == digest else "prompt"
        if fact[key] == old:
            run.readdress(wanted, run.fact({**fact, key: new}))


def other_words(run: Forgery) -> None:
    """Change a word of a prompt's text, and every echo."""
    digest = run.manifest["prompts"]["s"]["b"]
    old = run.json(digest)["text"]
    new = old.replace("median", "mean")
    run.edit_fact(digest, lambda fact: fact.update(text=new))
    run.readdress(*("sha256:" + sha(text.replace(" ", "").encode()) for text in (old, new)))


def failed_trial(run: Forgery) -> None:
    """Let a reply that was bad have failed: what it said is gone, that it failed is not."""
    one = run.of("complete", trial=REPEAT)[0]
    one.update(reply=None, status=500, failure={"kind": "status", "message": "500", "body": None})


def everywhere(**values: object) -> Edit:
    """Return an edit of what the server attested, in every place."""

    def edit(run: Forgery) -> None:
        for one in [run.manifest["servers"][0], *run.of("server")]:
            one["attested"].update(values)

    return edit


def declared(run: Forgery) -> None:
    """Declare another command line."""
    run.edit_fact(run.manifest["servers"][0]["declaration"], lambda fact: fact.update(argv=["other"]))


def props(run: Forgery) -> None:
    """Change what `/props` said, in every place."""
    run.edit_fact(run.manifest["servers"][0]["attested"]["props"], lambda fact: fact.update(added="x"))


def both_canaries(run: Forgery) -> None:
    """Move both canaries alike."""
    for trial in ("canary/first", "canary/last"):
        rows = run.reply(trial)["rows"]
        data = bytearray(run.files[f"rows/{rows['file'][7:]}.f32"])
        data[0] ^= 1
        rows["file"] = run.store("rows", bytes(data), ".f32")
        width = 4 * rows["shape"][1]
        rows["digests"] = ["sha256:" + sha(bytes(data[at : at + width])) for at in range(0, len(data), width)]


def faster(run: Forgery) -> None:
    """Let a reply have taken half the time."""
    run.reply(REPEAT)["predicted_ms"] /= 2


def overlapped(run: Forgery) -> None:
    """Let the windows of a wave be longer than they were, so that they overlap better."""
    for one in run.of("complete", unit=WAVE):
        one["reply"]["predicted_ms"] += 5.0


def edges(run: Forgery) -> None:
    """Remove the snapshots of no unit, at the start and at the end."""
    run.lines = [one for one in run.lines if one["line"] != "snapshot" or one["unit"] is not None]


def wall(run: Forgery) -> None:
    """Let the run have happened a day earlier."""
    run.lines[0]["wall_ns"] -= 86_400 * 1_000 * MS


def machine(**values: object) -> Edit:
    """Return an edit of the machine."""
    return lambda run: run.manifest["machine"].update(values)


def program(**values: object) -> Edit:
    """Return an edit of the program."""
    return lambda run: run.manifest["program"].update(values)


def busy_canary(run: Forgery) -> None:
    """Let a slot have been busy before the last canary."""
    run.shot("canary/last", "before")["slots"][0][1] = True


def moved_canary(run: Forgery) -> None:
    """Let another process have answered the last canary."""
    for when in ("before", "after"):
        run.shot("canary/last", when)["process"] = {"start": "1", "media_marker": None}


def other_end(run: Forgery) -> None:
    """Let another server have been there when all was done."""
    run.of("server")[-1]["attested"].update(build_info="other", model="other", slots=1)


unseen("canary_was_busy", "other requests beside a canary, whose bytes are equal all the same", busy_canary)
unseen("canary_of_another_process", "who answered a canary, whose bytes are equal all the same", moved_canary)
unseen("server_after_all", "who the server was when all was done", other_end)
unseen("answer_invented", "a logprob, in every trial that gave it", invented)
unseen("control_invented", "how far a control moved", hidden)
unseen("divergence_invented", "a divergence, or its absence, in one trial", moved(REPEAT))
unseen("failure_invented", "a failure in the place of a reply", failed_trial)
unseen("canaries_moved_alike", "the canaries' rows, both alike", both_canaries)
unseen("ids_changed_everywhere", "token ids of a prompt given as text", other_ids)
unseen("words_changed_everywhere", "words of a prompt's text beside its digits", other_words)
unseen("reply_was_faster", "how long a reply took", faster)
unseen("windows_overlap_better", "processing windows", overlapped)
unseen("slots_busier", "busy slots a decode", metric(WAVE, "after", n_busy_slots_per_decode="3"))
unseen("edge_snapshots_removed", "the snapshots at the start and at the end", edges)
unseen("wall_clock", "wall-clock time", wall)
unseen("another_machine", "the machine", machine(cpu="another", cores=64))
unseen(
    "another_program", "the program's version and commit, without a repository", program(version="9", commit="0" * 40)
)
unseen("clean_program", "whether the program was changed", program(dirty=False))
unseen(
    "registered_earlier",
    "the registration's commit, without a repository",
    lambda run: run.manifest["registration"].update(commit="0" * 40),
)
unseen("another_name", "the registration's name", lambda run: run.manifest["registration"].update(name="other"))
unseen("another_declaration", "what the operator declares", declared)
unseen("another_build_everywhere", "the build that the server names", everywhere(build_info="b1"))
unseen("another_model_everywhere", "the model that the server names", everywhere(model="other"))
unseen("larger_context_everywhere", "the context of a slot", everywhere(n_ctx=65_536))
unseen("other_props_everywhere", "what `/props` said beside what is echoed", props)
unseen("model_of_a_reply", "the model that a reply names", reply(REPEAT, model="other"))
unseen("stop_of_a_reply", "why a reply stopped, and whether it was cut", reply(REPEAT, stop_type="eos", truncated=True))
unseen("echo_of_what_was_not_sent", "echoed settings that no request asks for", echo(REPEAT, added=1))
unseen("libraries", "the installed libraries", lambda run: run.manifest["dependencies"].update(httpx="9"))
unseen(
    "first_byte",
    "when the head of a reply came",
    lambda run: run.of("complete", trial=REPEAT)[0].update(
        first_byte_ns=run.of("complete", trial=REPEAT)[0]["sent_ns"]
    ),
)
