"""scripts/verify.py shares no function with audit/, even under other names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Renamed(ast.NodeTransformer):
    """Replaces names by the order in which they appear, and drops annotations: what is left is what a function does."""

    def __init__(self) -> None:
        self._order: dict[str, str] = {}

    def _name(self, name: str) -> str:
        return self._order.setdefault(name, f"n{len(self._order)}")

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(id=self._name(node.id), ctx=node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(arg=self._name(node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        return ast.Assign(targets=[node.target], value=node.value or ast.Constant(None))


def normalised(function: Function) -> str:
    """Return what a function does, without its name, docstring, annotations, decorators and choice of names."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    bare = ast.FunctionDef(name="f", args=function.args, body=body or [ast.Pass()], decorator_list=[], returns=None)
    copied = ast.parse(ast.unparse(ast.fix_missing_locations(bare)))
    return ast.dump(_Renamed().visit(copied))


def functions(source: str) -> dict[str, str]:
    """Return the name of each function of a module by what it does."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {normalised(function): function.name for function in found}


def shared(here: dict[str, str], there: dict[str, str]) -> list[tuple[str, str]]:
    """Return the pairs of functions of two modules that do the same."""
    return [(here[body], there[body]) for body in here.keys() & there.keys()]


def test_the_verifier_shares_no_function_with_the_audit(repository: Path) -> None:
    """No function of verify.py equals one of audit/ after normalising."""
    verifier = functions((repository / "scripts" / "verify.py").read_text())
    found = {
        path.relative_to(repository).as_posix(): pairs
        for path in sorted((repository / "audit").rglob("*.py"))
        if (pairs := shared(verifier, functions(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    "copy",
    [
        "def other(x: int) -> int:\n    y: int = x + 1\n    return y * x",
        '@cache\ndef mine(value):\n    """Say more."""\n    result = value + 1\n    return result * value',
    ],
)
def test_a_copied_function_is_found(copy: str) -> None:
    """Other names, annotations, decorators and docstrings do not hide a copy."""
    original = 'def mine(a):\n    """Do it."""\n    b = a + 1\n    return b * a'
    assert shared(functions(original), functions(copy)) == [("mine", "other" if "other" in copy else "mine")]


def test_another_function_is_not_taken_for_a_copy() -> None:
    """One other operator is another function."""
    assert shared(functions("def f(a):\n    return a + 1"), functions("def f(a):\n    return a - 1")) == []
