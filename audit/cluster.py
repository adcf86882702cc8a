"""Runs judged on the machines of a Dask cluster that somebody runs already; it judges nothing itself.

In go run folders, out comes what `report.across.told_of` says of each, in the order of the folders. Each run is one
task, and nothing of a run but its answer travels; so every worker must see the folders under the same path, and have
this version of the program. Dask moves pickles, which a worker executes: the cluster has to be one that you trust.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.report.across import Told, told_of

__all__ = ["over_dask"]

_TIMEOUT_S = 10


def over_dask(address: str, folders: Sequence[Path]) -> list[list[Told]]:
    """Judge runs on a cluster.

    Args:
        address: the scheduler, for example tcp://127.0.0.1:8786.
        folders: the runs.

    Raises: UsageError where Dask is missing or nobody answers; what `told_of` raises, as if it were raised here.
    """
    try:
        # An optional extra, and one whose types say less than its documentation.
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(
            f"--dask {address}: Dask is not installed", hint="python -m pip install 'determinism-audit[dask]'"
        ) from error
    try:
        client = distributed.Client(address, timeout=_TIMEOUT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--dask {address}: no scheduler answers there: {type(error).__name__}",
            hint="start one: dask scheduler; dask worker tcp://HOST:8786",
        ) from error
    with client:
        found: list[list[Told]] = client.gather(
            client.map(told_of, [folder.resolve() for folder in folders], pure=False, retries=0)
        )
    return found
