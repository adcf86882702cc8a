"""The identity gate on real builds and tiny models: one build against itself, and one that is not the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from audit.cli import _run as run_command_line
from audit.identity.assets import Asset
from audit.identity.builds import Spec
from audit.identity.findings import exit_code
from audit.identity.gate import Choice, choose_assets, compare_builds, ready
from audit.identity.order import order_of
from audit.identity.running import Build
from audit.local.models import ModelFile, resolve_binary
from audit.tiny import TINY_ARCHITECTURES
from tests.integration.comparing import verdicts, verify

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return the installed embedded build, as one that a comparison can start."""
    import xllamacpp

    from audit.identity.record import BuildEntry
    from audit.identity.scrub import scrubbed
    from audit.identity.serving import OwnedRunner

    folder = str(Path(xllamacpp.__file__).resolve().parent.parent)
    runner = OwnedRunner(
        binary=None, environment={**scrubbed(), "PYTHONPATH": folder}, logs=tmp_path_factory.mktemp("logs")
    )
    entry = BuildEntry(
        label="old", source="pypi", name="pypi:xllamacpp", commit=None, archive=None, options=[], restarts=True
    )
    return Build(entry=entry, rows="logprobs", runner=runner)


def renamed(build: Build, label: str) -> Build:
    """Return the same build under another label."""
    import dataclasses

    import msgspec

    return dataclasses.replace(build, entry=msgspec.structs.replace(build.entry, label=label))


def test_every_tiny_model_is_identical_to_itself(installed: Build, repository: Path, tmp_path: Path) -> None:
    """All architectures in one quantization each, the installed build on both sides: all IDENTICAL."""
    order = order_of(repository / "prereg" / "identity", changes={"steps": 2})
    kinds = ("f32", "q8_0", "f16", "q4_0")
    only = [f"tiny-{name}-{kinds[place % 4]}" for place, name in enumerate(TINY_ARCHITECTURES)]
    assets, _ = choose_assets(Choice(only=only), order)
    compared = compare_builds(
        order, [installed, renamed(installed, "new")], assets, tmp_path / "r", not_run={}, say=lambda _: None
    )
    assert compared is not None
    assert verdicts(compared.findings) == dict.fromkeys(TINY_ARCHITECTURES, "IDENTICAL")
    assert all(entry["identical"] == len(only) for entry in compared.findings["determinism"])
    assert verify(tmp_path / "r")[0] == 0


def test_another_model_under_the_same_name_is_different(installed: Build, repository: Path, tmp_path: Path) -> None:
    """One byte of one weight is another number, on the very first row."""
    order = order_of(repository / "prereg" / "identity", changes={"steps": 1})
    assets, _ = choose_assets(Choice(only=["tiny-llama-f32"]), order)
    patched = tmp_path / assets[0].model.path.name
    data = np.fromfile(assets[0].model.path, dtype=np.uint8)
    data[-5] ^= 1
    data.tofile(patched)

    class Swapped:
        """Runs the build on the patched file."""

        def run(self, asset: Asset, plan, jobs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            """Run on another file than was asked for."""
            other = ModelFile(name=asset.model.name, path=patched, sha256=asset.model.sha256)
            changed = Asset(other, asset.family, asset.quantization, asset.vocabulary, asset.prompts)
            return installed.runner.run(changed, plan, jobs)

    new = Build(entry=renamed(installed, "new").entry, rows="logprobs", runner=Swapped())
    compared = compare_builds(order, [installed, new], assets, tmp_path / "r", not_run={}, say=lambda _: None)
    assert compared is not None
    cell = compared.findings["pairs"][0]["cells"][0]
    assert (cell["verdict"], cell["difference"]["begins"]) == ("DIFFERENT", "prefill")
    assert verify(tmp_path / "r")[0] == 0


def skulk() -> Path:
    """Return the Vulkan build."""
    return resolve_binary("skulk-vulkan-b10434")


def test_a_build_that_fell_back_to_the_cpu_is_not_run(installed: Build, repository: Path, tmp_path: Path) -> None:
    """Asked for Vulkan, a build without it computes on the CPU all the same, and nothing of that is filed as Vulkan."""
    order = order_of(repository / "prereg" / "identity", changes={"steps": 1, "device": "vulkan"})
    assets, _ = choose_assets(Choice(only=["tiny-llama-f32"]), order)
    builds = [installed, renamed(installed, "new")]
    compared = compare_builds(order, builds, assets, tmp_path / "r", not_run={}, say=lambda _: None)
    assert compared is not None
    assert verdicts(compared.findings) == {"llama": "NOT RUN"}
    assert "asked for vulkan, ran on cpu" in compared.findings["pairs"][0]["cells"][0]["reason"]
    assert exit_code(compared.findings, require_all=False) == 2
    assert verify(tmp_path / "r")[0] == 0


def test_a_vulkan_build_without_a_gpu_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It falls back to the CPU, or ends where this processor lacks what it was compiled for: no result either way."""
    if shutil.which("vulkaninfo") is not None:
        pytest.skip("this machine may have a GPU")
    binary = f"binary:{skulk()}"
    words = ["identity", binary, binary, "--device", "vulkan", "--only", "tiny-llama-f32", "--steps", "1"]
    code = run_command_line([*words, "--out", str(tmp_path / "r"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 2
    assert verdicts(found) == {"llama": "NOT RUN"}
    reason = found["pairs"][0]["cells"][0]["reason"]
    assert "asked for vulkan, ran on cpu" in reason or "SIGILL" in reason
    assert verify(tmp_path / "r")[0] == 0


def test_a_build_that_cannot_be_had_is_an_error() -> None:
    """A git revision without a checkout is refused before anything starts."""
    with (
        pytest.raises(Exception, match="git revision of what"),
        ready([("old", Spec("git", "HEAD"))], repo=None, keep=False, say=lambda _: None),
    ):
        pass
