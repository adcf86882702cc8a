"""Hostile vectors: edits that contradict manifest, registration, prompts, store or findings."""

from __future__ import annotations

import hashlib

from scripts.forgery import Forgery, sha
from scripts.vectors.table import FORGED, REPEAT, ZEROS, Edit, add, patch, reply

# Manifest, registration, prompts -------------------------------------------------------------------------------------

TWICE = "the first server line says the same"


def reregister(run: Forgery, name: str, old: bytes, new: bytes) -> None:
    """Change a registered file, and what manifest and repository say of it, the registered digest too."""
    data = run.files[f"registration/{name}"].replace(old, new)
    run.files[f"registration/{name}"] = data
    run.manifest["registration"]["files"][name] = {"sha256": "sha256:" + sha(data), "blob": blob_of(data)}
    if name == "plan.json":
        run.files["plan.json"] = data
        run.manifest["plan"] = "sha256:" + sha(data)
    names = ("PREREG.md", "plan.json", "plan.toml", "predictions.json")
    texts = "".join(f"{sha(run.files['registration/' + one])}  {one}\n" for one in names)
    run.manifest["registration"]["digest"] = run.manifest["registered"] = "sha256:" + sha(texts.encode())


def blob_of(data: bytes) -> str:
    """Return the git blob id of some bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def attested(**values: object) -> Edit:
    """Return an edit of what the manifest says that the server attested."""
    return lambda run: run.manifest["servers"][0]["attested"].update(values)


def registered(name: str, **values: object) -> Edit:
    """Return an edit of what the manifest says of a registered file."""
    return lambda run: run.manifest["registration"]["files"][name].update(values)


def prompt_text(run: Forgery) -> None:
    """Take the registered digits out of the frozen text, and let every echo agree."""
    digest = run.manifest["prompts"]["s"]["a"]
    old = run.json(digest)["text"]
    new = old[:-1] + ("0" if old[-1] != "0" else "1")
    run.edit_fact(digest, lambda fact: fact.update(text=new))
    echoes = ["sha256:" + sha(text.replace(" ", "").encode()) for text in (old, new)]
    run.readdress(*echoes)


DIGEST = "the registered digest is that of the four files"
add("another_build", "manifest", TWICE, attested(build_info="b1"))
add("another_plan_digest", "manifest", "the plan's digest", lambda run: run.manifest.update(plan=ZEROS))
add("more_registered", "manifest", "the listed files", lambda run: run.files.update({"registration/a.md": b"x\n"}))
add("blob_changed", "registration", "a blob id is a digest", registered("PREREG.md", blob="0" * 40))
add("sum_changed", "registration", "the seal says the same", registered("PREREG.md", sha256=ZEROS))
add("digest_changed", "registration", DIGEST, lambda run: run.manifest["registration"].update(digest=ZEROS))
add("prediction_lowered", "registration", DIGEST, patch("registration/predictions", b'"value": 1.0', b'"value": 0.5'))
WIDER = (b'"minimum": 2', b'"minimum": 1')
SEEDS = "the registered digest dictates seeds and order"
add(
    "prediction_registered_again",
    "requests",
    SEEDS,
    lambda run: reregister(run, "predictions.json", *WIDER),
    forge=FORGED,
)
LOWER = (b'"minimum":2', b'"minimum":1')
add("minimum_registered_again", "requests", SEEDS, lambda run: reregister(run, "plan.json", *LOWER), forge=FORGED)
TOP = (b'"n_probs":3', b'"n_probs":2')
add("n_probs_registered_again", "requests", SEEDS, lambda run: reregister(run, "plan.json", *TOP), forge=FORGED)
add("digits_missing", "prompts", "a placeholder's digits stand in the text", prompt_text, forge=FORGED)
add(
    "prompt_more",
    "prompts",
    "the plan names every prompt",
    lambda run: run.manifest["prompts"]["s"].update(c=run.manifest["prompts"]["s"]["a"]),
)

# Store, streams, rows, findings --------------------------------------------------------------------------------------

STREAM = "digests and counts follow from the stream"


def orphan(run: Forgery) -> None:
    """Keep a file that nothing names: the better answer may be meant to replace the recorded one later."""
    run.fact({"nobody": "names it"})
    run.keep = True


def hole(run: Forgery) -> None:
    """Take the logprobs of one step away and say nothing of it."""
    digest = run.reply(REPEAT)["logprob"]
    lines = run.steps(digest)
    lines[3] = [lines[3][0], None, []]
    run.restream(digest, lines, (REPEAT,))
    run.reply(REPEAT)["holes"] = 0


def other_rows(run: Forgery) -> None:
    """Change one value of the canary's rows, with the digests of the rows as they were."""
    data = bytearray(run.files[f"rows/{run.reply('canary/first')['rows']['file'][7:]}.f32"])
    data[0] ^= 1
    for name in ("canary/first", "canary/last"):
        run.reply(name)["rows"]["file"] = run.store("rows", bytes(data), ".f32")


def joined(**values: object) -> Edit:
    """Return an edit of what the last request of a trial of prefixes says of the whole."""
    trial = "prefill_vs_decode/b/0/prefixes"
    return lambda run: run.of("complete", trial=trial)[-1]["reply"]["joined"].update(values)


def cell(condition: str, **values: object) -> Edit:
    """Return an edit of a cell of the findings."""
    return lambda run: [one.update(values) for one in run.findings["cells"] if one["condition"] == condition]


def bound(run: Forgery) -> None:
    """Narrow a bound."""
    run.findings["cells"][0]["by_wave"]["high"] = 0.5


def status(run: Forgery) -> None:
    """Let a prediction hold that was refuted, or the reverse."""
    run.findings["predictions"][0]["status"] = "refuted"


FOUND = "findings are computed again"
add("orphan", "store", "each stored file is named", orphan)
add("settings_withheld", "store", "each named file is stored", reply(REPEAT, settings=ZEROS))
add("ids_relabelled", "streams", STREAM, reply(REPEAT, token=ZEROS))
add("steps_exaggerated", "streams", STREAM, reply(REPEAT, steps=9), forge=FORGED)
add("hole_hidden", "streams", STREAM, hole, forge=FORGED)
add("saturated_hidden", "streams", STREAM, reply(REPEAT, saturated=1))
add("joined_relabelled", "streams", STREAM, joined(token=ZEROS), forge=FORGED)
add("rows_changed", "rows", "each row has its digest", other_rows)
add("rows_counts", "rows", "counts follow from the rows", reply("canary/last", above_zero=1))
add("verdict_lifted", "findings", FOUND, cell("concurrent_greedy_c4", verdict="identical"))
add("excluded_hidden", "findings", FOUND, cell("concurrent_greedy_c4", reasons={}))
add("bound_narrowed", "findings", FOUND, bound)
add("prediction_turned", "findings", FOUND, status)
add("cell_removed", "findings", FOUND, lambda run: run.findings["cells"].pop())
add("exploratory", "findings", FOUND, lambda run: run.findings.update(exploratory="not registered"))
