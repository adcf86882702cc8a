"""The launcher: what a build understands, and a server of it under chosen settings.

In goes a model and a build, out come servers that run for as long as a context lasts. `Launcher` is what `measure`
needs of any of them; `LlamaLauncher` is the one for llama.cpp, the embedded build or a program. What a program does not
name in its `--help`, or a variable that occurs in none of its files, is not tried: a server that ignores a setting
would be measured under its name.
"""

import contextlib
import dataclasses
import importlib.util
import json
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from audit.client import Address
from audit.errors import ServerError, UsageError
from audit.local.declare import build_name, declared_argv
from audit.local.launch import LaunchSettings
from audit.local.models import ModelFile
from audit.local.owned import OwnedServer, start_binary, start_embedded
from audit.local.process import memory_bytes_max
from audit.remedy.catalogue import CATALOGUE, Setting
from audit.sitting import Target

__all__ = ["Known", "Launcher", "LlamaLauncher", "Started"]

_HELP_SECONDS = 60.0
_FIELDS = "import json, xllamacpp; p = xllamacpp.CommonParams(); print(json.dumps([n for n in dir(p) if n[0] != '_']))"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """What a build says that it understands: `help` is a fact for the record, `variables` occur in its files."""

    build: str
    help: dict[str, Any]
    variables: frozenset[str]


class Started(Protocol):
    """A server that runs under settings."""

    @property
    def target(self) -> Target:
        """The server, to be audited."""

    def memory_bytes(self) -> int | None:
        """Return the largest resident memory of its process so far, None where nobody knows."""


class Launcher(Protocol):
    """Starts servers of one build with one model."""

    @property
    def model(self) -> str:
        """The model's name."""

    @property
    def model_sha256(self) -> str:
        """The digest of its file."""

    @property
    def slots(self) -> int:
        """Slots of a server without any setting."""

    @property
    def threads(self) -> int:
        """Threads of one."""

    def line(self) -> list[str]:
        """Return the line of a server without any setting, as it is declared, with any port."""

    def known(self) -> Known:
        """Ask the build what it understands."""

    def understands(self, known: Known, setting: Setting) -> bool:
        """Tell whether it understands a setting."""

    def differs(self, setting: Setting) -> bool:
        """Tell whether a server under a setting is started in another way than one without any."""

    def start(self, settings: Sequence[Setting]) -> AbstractContextManager[Started]:
        """Start a server under settings, and stop it afterwards."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Llama:
    """A llama.cpp server that was started here."""

    target: Target
    server: OwnedServer

    def memory_bytes(self) -> int | None:
        return memory_bytes_max(self.server.pid)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LlamaLauncher:
    """Starts llama.cpp with a model: the embedded build, or a program.

    Args:
        file: the model.
        base: the settings of a server without any of the catalogue.
        binary: the program, None for the embedded build.
        deadline_s: seconds that a start may take.
    """

    file: ModelFile
    base: LaunchSettings
    binary: Path | None = None
    deadline_s: float = 120.0

    @property
    def model(self) -> str:
        """The model's name."""
        return self.file.name

    @property
    def model_sha256(self) -> str:
        """The digest of its file."""
        return f"sha256:{self.file.sha256}"

    @property
    def slots(self) -> int:
        """Slots of a server without any setting."""
        return self.base.slots

    @property
    def threads(self) -> int:
        """Threads of one."""
        return self.base.threads

    def line(self) -> list[str]:
        """Return the line of a server without any setting, as it is declared, with port 0."""
        return declared_argv(self.file, self.base, binary=self.binary, port=0)

    def known(self) -> Known:
        """Ask the build: a program for its help, the embedded build for its fields, both for words in their files.

        Raises: UsageError where the build is not there; ServerError where it does not answer.
        """
        names = {name for setting in CATALOGUE for name in setting.environment}
        words = self._words()
        return Known(
            build=build_name(self.binary),
            help={"help": words} if self.binary is not None else {"fields": json.loads(words)},
            variables=frozenset(_occurring(names, self._files())),
        )

    def understands(self, known: Known, setting: Setting) -> bool:
        """Tell whether the build understands a setting: by its help, its fields, or the variables in its files."""
        if setting.environment:
            return set(setting.environment) <= known.variables
        if self.binary is None:
            return setting.field in known.help["fields"]
        words = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", known.help["help"]))
        return {word for word in setting.words if word.startswith("-")} <= words

    def differs(self, setting: Setting) -> bool:
        """Tell whether any launch setting or variable would be another."""
        return bool(setting.environment) or dataclasses.replace(self.base, **setting.changes) != self.base

    @contextlib.contextmanager
    def start(self, settings: Sequence[Setting]) -> Iterator[Started]:
        """Start the server.

        Raises: UsageError where settings do not fit together; ServerError where it does not become ready.
        """
        changes: dict[str, Any] = {}
        variables: dict[str, str] = {}
        for setting in settings:
            changes |= setting.changes
            variables |= setting.environment
        chosen = dataclasses.replace(self.base, **changes)
        environment: Mapping[str, str] | None = {**os.environ, **variables} if variables else None
        with self._started(chosen, environment) as server:
            address = Address(label=self.file.name, url=server.url)
            yield _Llama(target=Target(address=address, owned=server), server=server)

    def _started(self, chosen: LaunchSettings, environment: Mapping[str, str] | None) -> OwnedServer:
        if self.binary is None:
            return start_embedded(self.file, chosen, deadline_s=self.deadline_s, environment=environment)
        return start_binary(self.binary, self.file, chosen, deadline_s=self.deadline_s, environment=environment)

    def _words(self) -> str:
        command = [sys.executable, "-P", "-c", _FIELDS] if self.binary is None else [str(self.binary), "--help"]
        environment = dict(os.environ)
        if self.binary is not None:
            places = [str(self.binary.parent), environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(place for place in places if place)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_HELP_SECONDS, env=environment
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerError(f"{build_name(self.binary)} does not say what it understands: {error}") from error
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:]
            raise ServerError(
                f"{build_name(self.binary)} does not say what it understands: exit {done.returncode}",
                hint=last[0] if last else "run it with --help by hand",
            )
        return done.stdout

    def _files(self) -> list[Path]:
        """Return the files of the build: the program and the shared objects beside it, or those of the package."""
        if self.binary is not None:
            return [self.binary, *sorted(self.binary.parent.glob("*.so*"))]
        found = importlib.util.find_spec("xllamacpp")
        if found is None or found.origin is None:
            raise UsageError("the embedded server is not installed: no package xllamacpp")
        return sorted(Path(found.origin).parent.glob("*.so*"))


def _occurring(names: set[str], files: Sequence[Path]) -> set[str]:
    """Return the names that stand, as a whole word, in any of the files."""
    found: set[str] = set()
    for path in files:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found |= {
                name for name in names - found if re.search(rb"(?<![A-Z0-9_])%b(?![A-Z0-9_])" % name.encode(), data)
            }
    return found
