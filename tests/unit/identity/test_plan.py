"""What every build is asked: the plan, its prompts as token ids, and the registration it belongs to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.errors import PlanError, UsageError
from audit.identity.assets import real_assets, tiny_assets, token_ids
from audit.identity.header import read_header
from audit.identity.order import load_identity_predictions, order_of
from audit.identity.plan import IdentityPlan
from audit.kind import kind_of
from audit.tiny import tiny_vocabulary, write_tiny
from tests.integration.comparing import ORDER, PLAN

VALUES = PLAN.model_dump(mode="json")


def test_the_registered_plan_is_what_its_toml_says(repository: Path) -> None:
    """The registration's plan.json is canonical, and its prompts cross the borders that they are there for."""
    order = order_of(repository / "prereg" / "identity", changes={})
    assert order.registration is not None
    assert order.plan.rows == 9
    tokens = {name: prompt.tokens for name, prompt in order.plan.prompts.items()}
    assert tokens["short"] < 32 < tokens["batched"] <= order.plan.ubatch < order.plan.batch < tokens["long"]
    assert order.registered[7:23] in order.plan.prompts["short"].filled(order.registered)


def test_a_flag_makes_the_registration_overridden(repository: Path) -> None:
    """A changed plan derives from its own digest and not from the registration's."""
    order = order_of(repository / "prereg" / "identity", changes={"steps": 1, "device": None})
    assert order.registration is not None
    assert order.registration.status == "overridden"
    assert order.registered != order.registration.digest


@pytest.mark.parametrize(
    "change",
    [
        {"steps": -1},
        {"device": "tpu"},
        {"steps": 300},
        {"ubatch": 4096},
        {"prompts": {}},
        {"prompts": {"a b": {"text": "x", "tokens": 1}}},
        {"name": ""},
        {"more": 1},
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(change: dict[str, object]) -> None:
    """The error names the file."""
    with pytest.raises(PlanError, match="plan"):
        IdentityPlan.parse({**VALUES, **change}, name="plan")


def test_a_plan_reads_its_own_bytes() -> None:
    """plan.json resolves to the same plan."""
    assert IdentityPlan.from_bytes(PLAN.to_bytes()).to_bytes() == PLAN.to_bytes()
    with pytest.raises(PlanError):
        IdentityPlan.from_bytes(b"[")


def test_a_text_is_spelled_by_the_longest_pieces() -> None:
    """The ids spell the text, begin with the first id, and repeat up to the count."""
    pieces, _ = tiny_vocabulary()
    ids = token_ids(pieces, "Once upon a time", first=1, count=30, space="\u0120")
    assert len(ids) == 30
    assert ids[0] == 1
    spelled = "".join(pieces[token] for token in ids[1:]).replace("\u0120", " ")
    assert spelled.startswith("Once upon a timeOnce upon")


def test_a_vocabulary_without_the_text_is_refused() -> None:
    """A model of something else than text has no prompt."""
    with pytest.raises(UsageError, match="no piece"):
        token_ids(["<a>", "<b>"], "Once", first=None, count=3, space=" ")


def test_a_header_is_read_and_another_file_refused(tmp_path: Path) -> None:
    """The asked keys come back; what is no GGUF, or ends early, is an error and no guess."""
    pytest.importorskip("gguf")
    write_tiny("tiny-gemma3-q4_0", tmp_path / "m.gguf")
    keys = frozenset({"general.architecture", "tokenizer.ggml.tokens", "gemma3.context_length", "no.such.key"})
    header = read_header(tmp_path / "m.gguf", keys)
    assert header["general.architecture"] == "gemma3"
    assert header["gemma3.context_length"] == 4096
    assert header["tokenizer.ggml.tokens"] == tiny_vocabulary()[0]
    whole = (tmp_path / "m.gguf").read_bytes()
    for data in (b"", b"GGUF", b"GGML" + whole[4:64], whole[:100], b"GGUF" + (9).to_bytes(4, "little") + whole[8:64]):
        (tmp_path / "broken.gguf").write_bytes(data)
        with pytest.raises(UsageError, match=r"broken\.gguf"):
            read_header(tmp_path / "broken.gguf", keys)


def test_families_and_quantizations_narrow_the_tiny_models() -> None:
    """Only what was asked, and an asked architecture without a tiny model with its reason."""
    pytest.importorskip("gguf")
    assets, skipped = tiny_assets(
        PLAN, ORDER.registered, families=["mamba", "bert"], quantizations=["f32", "q8_0"], only=[]
    )
    assert [asset.cell for asset in assets] == ["tiny-mamba-f32", "tiny-mamba-q8_0"]
    assert list(skipped) == ["bert"]


@pytest.mark.parametrize(
    ("families", "quantizations", "only"), [(["lama"], [], []), ([], ["q5_0"], []), ([], [], ["tiny-lama-f32"])]
)
def test_an_unknown_name_is_an_error(families: list[str], quantizations: list[str], only: list[str]) -> None:
    """A name that selects nothing must not pass for a run in which all was identical."""
    pytest.importorskip("gguf")
    with pytest.raises(UsageError, match="does not exist"):
        tiny_assets(PLAN, ORDER.registered, families=families, quantizations=quantizations, only=only)
    with pytest.raises(UsageError, match="does not exist"):
        real_assets(PLAN, ORDER.registered, ["tiny-llama-q4_0"], families=["gemma3"], only=[])


def test_predictions_are_read_strictly(repository: Path) -> None:
    """The registered ones are valid; a doubled id and an unknown measure are not."""
    data = (repository / "prereg" / "identity" / "predictions.json").read_bytes()
    assert [prediction.id for prediction in load_identity_predictions(data)] == ["kill-1", "own-1", "own-2", "own-3"]
    values = json.loads(data)
    doubled = {**values, "predictions": values["predictions"] * 2}
    unknown = {**values, "predictions": [{**values["predictions"][0], "measure": "feeling"}]}
    wrong: list[object] = [doubled, unknown, []]
    for broken in wrong:
        with pytest.raises(PlanError):
            load_identity_predictions(json.dumps(broken).encode())


def test_the_kind_of_a_folder_is_its_manifests(tmp_path: Path) -> None:
    """Without a manifest, or with another file in its place, it is left to the reader of audits to complain."""
    assert kind_of(tmp_path) == "audit"
    for text, kind in (("{}", "audit"), ("[", "audit"), ("[]", "audit"), ('{"kind":"identity"}', "identity")):
        (tmp_path / "manifest.json").write_text(text, encoding="ascii")
        assert kind_of(tmp_path) == kind
