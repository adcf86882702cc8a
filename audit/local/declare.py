"""The declaration of an owned server: what its operator knows and the server itself cannot attest.

In goes how a server was started and its process id, out comes a plain JSON object without any path of this machine. It
is a declaration by us, never an attestation by the server. Nothing here starts or changes a process.
"""

import dataclasses
import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.local.launch import LaunchSettings, bare_words, server_arguments
from audit.local.models import ModelFile
from audit.local.process import environment_present, file_sha256, mapped_libraries

__all__ = ["build_name", "declare", "declared_argv"]

# Settings that came later: they stand in a declaration only where one was set, so that older ones can be compared.
_SILENT = ("threads_batch", "cont_batching", "cache_prompt")


def declare(
    model: ModelFile,
    settings: LaunchSettings,
    *,
    binary: Path | None,
    pid: int,
    port: int,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Describe a running server: argv, build, environment, digests of model, executable and libraries, settings.

    For the embedded build `argv` is the equivalent server line, and the executable is the Python that runs it.
    `environment_present` holds names, never values: those of `environment`, which the server was given, or of this
    process. `libraries` are those that the process has mapped at this moment;
    one whose file was deleted since has `sha256` null.
    """
    libraries = mapped_libraries(pid)
    plain = dataclasses.asdict(settings) | {"extra_args": bare_words(list(settings.extra_args))}
    plain = {name: value for name, value in plain.items() if value is not None or name not in _SILENT}
    return {
        "argv": declared_argv(model, settings, binary=binary, port=port),
        "build": build_name(binary),
        "environment_present": environment_present(environment),
        "executable_sha256": file_sha256(binary or Path(sys.executable)),
        "libraries": [
            {"name": path.name, "sha256": file_sha256(path) if path.exists() else None} for path in libraries or []
        ],
        "libraries_source": "not available" if libraries is None else "mapped by the process",
        "model_file": model.path.name,
        "model_sha256": model.sha256,
        "settings": plain,
    }


def declared_argv(model: ModelFile, settings: LaunchSettings, *, binary: Path | None, port: int) -> list[str]:
    """Return the server line as it is declared, without any path of this machine."""
    words = server_arguments(model.path.name, settings, port=port, binary=binary is not None)
    return bare_words([str(binary or "xllamacpp"), *words])


def build_name(binary: Path | None) -> str:
    """Name the build: the file name of a binary, or for None the version of the embedded one.

    Raises: UsageError when the embedded build is not installed.
    """
    if binary is not None:
        return f"binary:{binary.name}"
    try:
        return f"xllamacpp=={importlib.metadata.version('xllamacpp')}"
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            "the embedded server is not installed: no package xllamacpp",
            hint="install the extra: python -m pip install 'determinism-audit[local]'",
        ) from error
