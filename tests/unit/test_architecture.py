"""Imports of audit/ point one way, modules stay short, and the verifier stands alone.

The checker reads source only: an import counts wherever it stands, also inside a function or under TYPE_CHECKING, and
also as `importlib.import_module("audit.x")`. A package under audit/ counts as one module. What an installed library
imports by itself is not followed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

RANKS = {
    "": 0,  # audit/__init__.py, which every import of the package runs first
    "errors": 0,
    **dict.fromkeys(["events", "files", "kind", "schedule", "statistics", "stream", "trial"], 1),
    **dict.fromkeys(["advice", "conditions", "finding", "record", "rows"], 2),
    **dict.fromkeys(["compare", "difference", "history", "past", "plan", "transport", "wire"], 3),
    **dict.fromkeys(["client", "machine", "order", "request", "store", "tiny"], 4),
    **dict.fromkeys(["export", "local", "prereg", "proofs", "server", "unsealed"], 5),
    **dict.fromkeys(["analyse", "dumper", "fake", "probe", "replies", "spool"], 6),
    "sitting": 7,
    "execution": 8,
    **dict.fromkeys(["capture", "resume"], 9),
    "report": 10,
    **dict.fromkeys(["accuracy", "identity", "remedy"], 11),
    **dict.fromkeys(["cluster", "derived", "lock"], 12),
    "cli": 13,
    "__main__": 14,  # it starts cli
}
# The order of the packages that are planted below, which stay as they are when a module of ours gets another rank.
PLANTED = {"": 0, "errors": 0, "stream": 1, "client": 3, "plan": 3, "store": 3, "identity": 6, "cli": 7}

# Calls that open a connection without an import of their own, under whatever name asyncio or a loop goes.
ASYNCIO_NETWORK = frozenset(
    {
        "create_connection",
        "create_datagram_endpoint",
        "create_server",
        "create_unix_connection",
        "create_unix_server",
        "open_connection",
        "open_unix_connection",
        "start_server",
        "start_unix_server",
    }
)
TALKERS = frozenset({"audit.client", "audit.server", "audit.local", "audit.fake", "audit.capture", "audit.transport"})
LIBRARIES = frozenset({"asyncio.streams", "h11", "http.client", "http.server", "httpcore", "httpx", "requests"})
SOCKETS = frozenset({"socket", "socketserver", "ssl", "urllib.request", "xmlrpc"})
NETWORK = TALKERS | LIBRARIES | SOCKETS | {f"asyncio.{call}" for call in ASYNCIO_NETWORK}

# Who must not reach what, also through others.
BANS = {
    **dict.fromkeys(["analyse", "compare", "proofs", "report"], NETWORK),
    **dict.fromkeys(["capture", "resume"], frozenset({"audit.compare", "audit.proofs", "audit.analyse"})),
}

LINES_MAX = 350
# The verifier is one file by design: it is copied to where nothing is installed.
LINES_MAX_BY_FILE = {"scripts/verify.py": 4115}


@dataclass(frozen=True)
class Package:
    """What every module of one package imports: dotted names, those of the package itself as PACKAGE.MODULE."""

    name: str
    imports: dict[str, frozenset[str]]

    def own(self, module: str) -> list[str]:
        """Return the other modules of the package that `module` imports itself."""
        names = (self.module_of(name) for name in self.imports[module])
        return sorted({name for name in names if name is not None and name != module})

    def module_of(self, dotted: str) -> str | None:
        """Return the module that a dotted name belongs to, "" for the package's own file, None where there is none."""
        first, *rest = dotted.split(".")
        if first != self.name:
            return None
        module = rest[0] if rest and rest[0] in self.imports else ""
        return module if module in self.imports else None

    def paths_from(self, module: str) -> dict[str, list[str]]:
        """Return, for everything that `module` reaches, the shortest chain of modules that leads there."""
        found: dict[str, list[str]] = {}
        waiting = [[module]]
        for chain in waiting:
            for name in sorted(self.imports[chain[-1]]):
                found.setdefault(name, chain)
            waiting += [[*chain, name] for name in self.own(chain[-1]) if not any(name in seen for seen in waiting)]
        return found


def read_package(root: Path) -> Package:
    """Read the imports of every file under `root`, the folder of a package; each imports the package's own file."""
    imports: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = "" if parts == ("__init__",) else parts[0]
        folder = ".".join([root.name, *parts[:-1]])
        tree = ast.parse(path.read_bytes(), filename=str(path))
        imports.setdefault(module, {root.name}).update(imported_names(tree, folder=folder))
    return Package(root.name, {module: frozenset(names) for module, names in imports.items()})


def imported_names(tree: ast.AST, *, folder: str) -> Iterator[str]:
    """Yield the dotted name of everything a file imports; `folder` is the package that relative imports start from."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = folder.split(".")[: len(folder.split(".")) - level + 1] if level else []
                base = ".".join([*above, *([module] if module else [])])
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Attribute(attr=attribute) if attribute in ASYNCIO_NETWORK:
                yield f"asyncio.{attribute}"


def rank_violations(package: Package, ranks: dict[str, int]) -> list[str]:
    """Return every import that does not point to a lower rank, and every module without a rank."""
    unranked = [f"{module} has no rank" for module in package.imports if module not in ranks]
    upward = [
        f"{module or '__init__'} (rank {ranks[module]}) imports {name} (rank {ranks[name]})"
        for module in package.imports
        for name in package.own(module)
        if module in ranks and name in ranks and name != "" and ranks[name] >= ranks[module]
    ]
    return sorted(unranked + upward)


def ban_violations(package: Package, bans: dict[str, frozenset[str]]) -> list[str]:
    """Return, for every banned thing that is reached, who reaches it and through whom."""
    return sorted(
        f"{' -> '.join(step or '__init__' for step in chain)} -> {name}"
        for module, banned in bans.items()
        if module in package.imports
        for name, chain in package.paths_from(module).items()
        if any(name == ban or name.startswith(f"{ban}.") for ban in banned)
    )


def module_violations(root: Path) -> list[str]:
    """Return every Python file of audit/ and scripts/ under `root` that is too long or has no docstring."""
    violations = []
    for path in sorted([*(root / "audit").rglob("*.py"), *(root / "scripts").rglob("*.py")]):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="ascii")
        count, allowed = len(text.splitlines()), LINES_MAX_BY_FILE.get(name, LINES_MAX)
        if count > allowed:
            violations.append(f"{name}: {count} lines, at most {allowed}")
        if not ast.get_docstring(ast.parse(text)):
            violations.append(f"{name}: no docstring")
    return violations


def plant(root: Path, files: dict[str, str]) -> Package:
    """Write a package named audit with these files, and read it."""
    for name, text in files.items():
        path = root / "audit" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return read_package(root / "audit")


def test_every_import_points_to_a_lower_rank(repository: Path) -> None:
    """Every module of audit/ has a rank and imports only from lower ones."""
    package = read_package(repository / "audit")
    assert "errors" in package.imports
    assert rank_violations(package, RANKS) == []


def test_judgement_reaches_no_network_and_capture_no_judgement(repository: Path) -> None:
    """The two bans hold, also through other modules."""
    assert ban_violations(read_package(repository / "audit"), BANS) == []


def test_every_module_is_short_and_says_what_it_is_for(repository: Path) -> None:
    """No file of audit/ or scripts/ is over its number of lines or without a docstring."""
    assert module_violations(repository) == []


def test_the_verifier_imports_the_standard_library_only(repository: Path) -> None:
    """scripts/verify.py runs where nothing is installed."""
    tree = ast.parse((repository / "scripts" / "verify.py").read_bytes())
    names = {name.split(".")[0] for name in imported_names(tree, folder="scripts")}
    assert "hashlib" in names
    assert names - sys.stdlib_module_names == set()


@pytest.mark.parametrize(
    "line",
    [
        "from audit import store",
        "from audit.store import Store",
        "import audit.store as s",
        "from . import store",
        "from .store import Store",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from audit.store import Store",
        "def late():\n    import audit.store",
        'import importlib\nimportlib.import_module("audit.store")',
    ],
)
def test_an_import_of_a_higher_rank_is_found(tmp_path: Path, line: str) -> None:
    """However it is written, an upward import is named with both ranks."""
    package = plant(tmp_path, {"__init__.py": "", "stream.py": line, "store.py": ""})
    assert rank_violations(package, PLANTED) == ["stream (rank 1) imports store (rank 3)"]


def test_an_import_of_an_equal_rank_is_found(tmp_path: Path) -> None:
    """Two modules of one rank do not know each other."""
    package = plant(tmp_path, {"plan.py": "import audit.client", "client.py": ""})
    assert rank_violations(package, PLANTED) == ["plan (rank 3) imports client (rank 3)"]


def test_a_module_without_a_rank_is_found(tmp_path: Path) -> None:
    """A new module needs a place in the order before it is used."""
    assert rank_violations(plant(tmp_path, {"novel.py": ""}), PLANTED) == ["novel has no rank"]


def test_a_package_counts_as_one_module(tmp_path: Path) -> None:
    """Files of a package may import each other, and a violation anywhere in it is the package's."""
    files = {
        "identity/__init__.py": "",
        "identity/cells.py": "from ..cli import main",
        "identity/gate.py": "from audit.identity.cells import Cell\nfrom .cells import Cell",
        "cli.py": "",
    }
    assert rank_violations(plant(tmp_path, files), PLANTED) == ["identity (rank 6) imports cli (rank 7)"]


def test_a_downward_import_and_the_package_itself_are_allowed(tmp_path: Path) -> None:
    """Imports from lower ranks, of a name of audit/__init__.py and of other libraries are no violation."""
    files = {"__init__.py": "", "errors.py": "", "stream.py": "import json\nfrom audit import errors, __version__\n"}
    package = plant(tmp_path, files)
    assert package.own("stream") == ["", "errors"]
    assert rank_violations(package, PLANTED) == []


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        ("import httpx", "httpx"),
        ("from socket import create_server", "socket.create_server"),
        ("from urllib import request", "urllib.request"),
        ("import http.client", "http.client"),
        ("import asyncio\nasyncio.open_connection()", "asyncio.open_connection"),
        ("from asyncio import start_server", "asyncio.start_server"),
        ("from audit.client import Client", "audit.client.Client"),
    ],
)
def test_a_network_reached_through_another_module_is_found(tmp_path: Path, line: str, reached: str) -> None:
    """Judgement that reaches the network at second hand is named with the chain."""
    files = {"analyse.py": "import audit.store", "store.py": line, "client.py": ""}
    assert ban_violations(plant(tmp_path, files), BANS) == [f"analyse -> store -> {reached}"]


def test_what_the_package_itself_imports_counts_for_all(tmp_path: Path) -> None:
    """A network in audit/__init__.py is reached by whoever imports any module of audit."""
    package = plant(tmp_path, {"__init__.py": "import httpx", "compare.py": ""})
    assert ban_violations(package, BANS) == ["compare -> __init__ -> httpx"]


def test_a_capture_that_reaches_a_judgement_is_found(tmp_path: Path) -> None:
    """A run must not know what it hopes for."""
    files = {"capture.py": "import audit.server", "server.py": "from audit.compare import compare", "compare.py": ""}
    assert ban_violations(plant(tmp_path, files), BANS) == ["capture -> server -> audit.compare.compare"]


def test_what_only_looks_like_a_network_is_allowed(tmp_path: Path) -> None:
    """Parsing an address, or an event loop without a connection, is no violation; nor is a circle of imports a hang."""
    files = {"report.py": "import urllib.parse, http, asyncio\nimport audit.plan", "plan.py": "import audit.report"}
    assert ban_violations(plant(tmp_path, files), BANS) == []


def test_a_long_or_silent_module_is_found(tmp_path: Path) -> None:
    """One line too many is named with both numbers, and so is a module that does not say what it is for."""
    for name, text in {"audit/long.py": '"""A."""\n' + "x = 1\n" * LINES_MAX, "scripts/mute.py": "x = 1\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="ascii")
    assert module_violations(tmp_path) == ["audit/long.py: 351 lines, at most 350", "scripts/mute.py: no docstring"]
