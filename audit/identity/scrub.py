"""The environment of a build: the few variables that are kept, so that nothing but the build differs between two sides.

In goes this process's environment, out come the variables of a child and the names for the record. Values are recorded
nowhere.
"""

import os
import re

__all__ = ["KEPT", "environment_facts", "scrubbed"]

# What a program needs to start, and what says which accelerator it may use; all else goes, on both sides alike.
KEPT = (
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "LANG",
    "LC_ALL",
    "PATH",
    "TMPDIR",
    "TZ",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
)
# Of what goes, the names that llama.cpp and the libraries below it read.
_READ_BY_BUILDS = re.compile(r"(LLAMA|GGML|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|LD)_")


def scrubbed() -> dict[str, str]:
    """Return the environment of a build's process."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def environment_facts() -> dict[str, list[str]]:
    """Name the variables that are kept, and of those removed the ones that a build would have read."""
    removed = sorted(name for name in os.environ if name not in KEPT and _READ_BY_BUILDS.match(name))
    return {"kept": sorted(scrubbed()), "removed": removed}
