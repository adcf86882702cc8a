"""The bytes of a request are canonical JSON with every sampler field, and change with what a trial asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from audit.errors import PlanError
from audit.plan import Canary, Plan, Prompt, Sampling, seed
from audit.request import request_body
from audit.stream import canonical
from audit.trial import Entry, Trial

REGISTERED = "sha256:" + "ab" * 32
PLAN = Plan(
    name="x",
    steps=5,
    n_probs=7,
    sampling=Sampling(temperature=0.75, top_k=11, top_p=0.5, min_p=0.25),
    control_temperature=1.25,
    canary=Canary(prompt="p"),
    prompts={"p": Prompt(ids=[3, 4])},
    conditions=[Entry(name="repeat_greedy", prompts=["p"])],
)
TRIAL = Trial(trial="t", condition="repeat_greedy", prompt="p", steps=5, seed_group="baseline/greedy/p")
# Written from the page: the whole body of a greedy request.
GREEDY = {
    "cache_prompt": False, "dry_allowed_length": 2, "dry_base": 1.75, "dry_multiplier": 0.0, "dry_penalty_last_n": 0,
    "dynatemp_exponent": 1.0, "dynatemp_range": 0.0, "frequency_penalty": 0.0, "grammar": "", "id_slot": 0,
    "ignore_eos": True, "logit_bias": [], "min_keep": 0, "min_p": 0.0, "mirostat": 0, "mirostat_eta": 0.1,
    "mirostat_tau": 5.0, "n_keep": 0, "n_predict": 5, "n_probs": 7, "post_sampling_probs": False,
    "presence_penalty": 0.0, "prompt": [3, 4], "repeat_last_n": 0, "repeat_penalty": 1.0, "return_tokens": True,
    "samplers": ["top_k", "top_p", "min_p", "temperature"], "seed": seed(REGISTERED, "baseline/greedy/p"), "stop": [],
    "stream": False, "temperature": 0.0, "timings_per_token": False, "top_k": 0, "top_n_sigma": -1.0, "top_p": 1.0,
    "typical_p": 1.0, "xtc_probability": 0.0, "xtc_threshold": 0.1,
}  # fmt: skip


def body(trial: Trial = TRIAL, **changes: Any) -> bytes:  # noqa: ANN401 - any argument
    """Return the request of a trial."""
    values: dict[str, Any] = {"registered": REGISTERED, "prompt": [3, 4], "vocabulary": 512, **changes}
    return request_body(PLAN, trial, **values)


def changed(trial: Trial, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any argument
    """Return what a trial's request asks for otherwise than the greedy one."""
    return {key: value for key, value in json.loads(body(trial, **changes)).items() if value != GREEDY[key]}


def test_a_greedy_request_is_canonical_to_the_byte() -> None:
    """Floats have their point, keys are sorted, and the newline is sent too."""
    assert body() == canonical(GREEDY)
    assert body().endswith(b'"xtc_threshold":0.1}\n')
    assert b'"temperature":0.0,' in body()


def test_every_key_of_the_page_is_sent(repository: Path) -> None:
    """The keys are those that docs/reference/record.md lists, no more and no fewer."""
    page = (repository / "docs" / "reference" / "record.md").read_text(encoding="ascii")
    section = page.split("**Requests.**", 1)[1].split("## history.jsonl", 1)[0]
    listed = {word for word in re.findall(r"\b[a-z]+(?:_[a-z_0-9]+)?\b", section) if word in GREEDY}
    assert listed == set(GREEDY)
    block = "\n".join(line for line in section.splitlines() if line.startswith("    "))
    starts = set(re.findall(r"(?:^    |, )([a-z][a-z_0-9]+)(?=,? )", block, flags=re.MULTILINE))
    assert len(starts) > 20
    # This one is the value of a key: what a control is sampled at.
    assert {word for word in starts if "_" in word} - {"control_temperature"} <= set(GREEDY)


CASES: dict[str, tuple[Trial, dict[str, Any]]] = {
    "slot": (replace(TRIAL, slot=3), {"id_slot": 3}),
    "not pinned": (replace(TRIAL, slot=-1), {"id_slot": -1}),
    "cache": (replace(TRIAL, cache=True), {"cache_prompt": True}),
    "streamed": (replace(TRIAL, streamed=True), {"stream": True}),
    "steps": (replace(TRIAL, steps=21), {"n_predict": 21}),
    "without logprobs": (replace(TRIAL, n_probs="none"), {"n_probs": 0}),
    "canary": (replace(TRIAL, n_probs="vocabulary", streamed=True, steps=2),
               {"n_probs": 512, "stream": True, "n_predict": 2}),
    "sampled": (replace(TRIAL, sampling="sampled"), {"temperature": 0.75, "top_k": 11, "top_p": 0.5, "min_p": 0.25}),
    "control": (replace(TRIAL, sampling="control"), {"temperature": 1.25, "top_k": 11, "top_p": 0.5, "min_p": 0.25}),
    "seed group": (replace(TRIAL, seed_group="other"), {"seed": seed(REGISTERED, "other")}),
    "prefixes": (replace(TRIAL, form="prefixes"), {"n_predict": 1}),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_a_trial_asks_for_changes_exactly_its_keys(what: str) -> None:
    """One property of a trial, one change of the request."""
    trial, expected = CASES[what]
    assert changed(trial) == expected


@pytest.mark.parametrize("change", [{"trial": "u"}, {"condition": "other"}, {"reference": "r"}, {"role": "support"}])
def test_the_names_of_a_trial_do_not_matter(change: dict[str, Any]) -> None:
    """What it is called and compared with is not sent: trials that ask for the same thing send the same bytes."""
    assert body(replace(TRIAL, **change)) == body()


def test_the_registered_digest_and_the_ids_matter() -> None:
    """Another registration has other seeds, another prompt another body."""
    assert set(changed(TRIAL, registered="sha256:" + "cd" * 32)) == {"seed"}
    assert changed(TRIAL, prompt=(3, 4, 9)) == {"prompt": [3, 4, 9]}
    assert body(prompt=(3, 4)) == body()


def test_a_grammar_forces_ids_by_number() -> None:
    """Only the forced form has a grammar, with the reference's ids in order."""
    forced = replace(TRIAL, form="forced")
    assert changed(forced, forced=(17, 0, 511)) == {"grammar": "root ::= <[17]> <[0]> <[511]>"}
    assert body(forced=(17, 0, 511)) == body()


def test_a_canary_without_a_known_vocabulary_is_refused() -> None:
    """Its n_probs is the vocabulary, which the server must name."""
    with pytest.raises(PlanError, match="vocabulary"):
        body(replace(TRIAL, n_probs="vocabulary"), vocabulary=None)
    assert body(vocabulary=None) == body()
