"""Where a server differs from what it was: every field but its process, each with both values and its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from audit.difference import differences
from audit.record import Attested, Process

FACTS: dict[str, Any] = {
    "props": {"build": {"flags": [1, 2]}, "chat_template": "x" * 200},
    "other": {"build": {"flags": [1, 3]}, "chat_template": "x" * 199 + "y", "novel": None},
    "models": {"data": [{"id": "m"}]},
}
BEFORE = Attested(
    build_info="b1", model="m.gguf", models="models", n_ctx=1024, process=Process(start="1", media_marker="a"),
    props="props", server_header="llama.cpp", slots=4, vocabulary=512,
)  # fmt: skip
DECLARED = {"argv": ["server", "--port", "1", "-np", "4"], "libraries": [{"name": "l", "sha256": "0"}]}


def found(declared: Any = DECLARED, **changes: Any) -> list[str]:  # noqa: ANN401 - any value of a field
    """Return the differences of a changed server."""
    now = (msgspec.structs.replace(BEFORE, **changes), declared)
    return differences((BEFORE, DECLARED), now, fact=FACTS.__getitem__)


def test_the_same_server_in_another_process_on_another_port_does_not_differ() -> None:
    """Its start, its random marker and the port that it was given are its process's."""
    argv = ["server", "--port", "2", "-np", "4"]
    assert found({**DECLARED, "argv": argv}, process=Process(start="2", media_marker="b")) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"build_info": "b2"}, ["build_info was 'b1', is 'b2'"]),
        ({"model": None}, ["model was 'm.gguf', is None"]),
        ({"slots": 8, "n_ctx": 512}, ["slots was 4, is 8", "n_ctx was 1024, is 512"]),
        ({"vocabulary": 513}, ["vocabulary was 512, is 513"]),
        ({"server_header": "proxy"}, ["server_header was 'llama.cpp', is 'proxy'"]),
        ({"models": None}, ["models was {'data': [{'id': 'm'}]}, is None"]),
    ],
)
def test_each_field_is_named_with_both_values(changes: dict[str, Any], expected: list[str]) -> None:
    """Nothing else is said."""
    assert found(**changes) == expected


def test_facts_are_compared_by_their_content_and_long_values_are_cut() -> None:
    """The path leads to the innermost difference; a key that is new or gone is one."""
    flags, template, novel = found(props="other")
    assert flags == "props.build.flags[1] was 2, is 3"
    assert template == f"props.chat_template was '{'x' * 56}..., is '{'x' * 56}..."
    assert novel == "props.novel was not there, is None"


def test_what_is_declared_is_compared_too() -> None:
    """Arguments and digests; one that is longer is shown whole, and True is not 1."""
    assert found({**DECLARED, "libraries": [{"name": "l", "sha256": "1"}]}) == [
        "declaration.libraries[0].sha256 was '0', is '1'"
    ]
    assert found(None)[0].startswith("declaration was {'argv': ['server', '-np', '4']")
    assert found({**DECLARED, "argv": ["server"]}) == ["declaration.argv was ['server', '-np', '4'], is ['server']"]
    before = (BEFORE, {"swa": True})
    assert differences(before, (BEFORE, {"swa": 1}), fact=FACTS.__getitem__) == ["declaration.swa was True, is 1"]
