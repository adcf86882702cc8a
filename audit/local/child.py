"""The child process of an owned server: it ties its life to its parent's, then becomes llama.cpp.

In goes one line of JSON on standard input (`audit.local.owned` writes it); what llama.cpp prints goes
to standard output and error, which the parent has pointed at a log. The process dies with its parent even when that one
is killed with -9: on Linux the kernel sends SIGKILL, and the embedded build also watches the pipe behind standard
input, which works everywhere. Off Linux a binary has no such watch and can outlive a killed parent.

The parent runs this file by its path with any interpreter that has xllamacpp, so it imports the standard library only
and nothing of this package. It does not wait for readiness and decides nothing about restarts.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
# Some wheels lack this field, which is no loss: saving idle slots needs the host cache, which an audit turns off.
_FIELDS_OPTIONAL = frozenset({"cache_idle_slots"})


def main() -> None:
    """Read the order from standard input and run the server that it names until somebody ends the process."""
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    _die_with_parent(order["parent_pid"])
    os.chdir(order["folder"])
    if order["binary"] is not None:
        _become_binary(order["binary"], order["arguments"])
    threading.Thread(target=_watch_parent, daemon=True).start()
    _run_embedded(order["fields"])


def _die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL at the parent's death, and leave if that death came before the asking."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG) failed: errno {ctypes.get_errno()}")
    if os.getppid() != parent_pid:
        sys.exit("the parent process is gone")


def _watch_parent() -> NoReturn:
    """End this process when the parent closes the pipe behind standard input, as its death does."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def _become_binary(binary: str, arguments: list[str]) -> NoReturn:
    # The parent-death signal survives exec; standard input must not, or the server would read our pipe.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.execv(binary, [binary, *arguments])  # noqa: S606 - the binary is the system under test, chosen by the user


def _run_embedded(fields: dict[str, Any]) -> NoReturn:
    try:
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ModuleNotFoundError:
        sys.exit("the xllamacpp package is not installed")
    params = xllamacpp.CommonParams()
    for name, value in fields.items():
        _set_field(xllamacpp, params, name, value)
    # Kept in a name: the server stops when the object is collected.
    server = xllamacpp.Server(params)
    print(f"listening_address {server.listening_address}", flush=True)  # noqa: T201 - this is the log
    while True:
        time.sleep(3600)


def _set_field(xllamacpp: Any, params: Any, name: str, value: Any) -> None:  # noqa: ANN401 - xllamacpp ships no types
    """Set one field of CommonParams by its name in the order; leave when this build cannot be told."""
    if name in {"threads", "threads_batch"}:
        # Prefill has as many threads as decoding, unless it is told otherwise afterwards.
        params.cpuparams_batch.n_threads = value
        params.cpuparams.n_threads = value if name == "threads" else params.cpuparams.n_threads
    elif name == "model_path":
        params.model.path = value
    elif name == "model_alias":
        params.model_alias = {value}
    elif name == "flash_attn":
        word = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[value]
        params.flash_attn_type = xllamacpp.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{word}"]
    elif name == "cache_type":
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type[f"GGML_TYPE_{value.upper()}"]
    elif name == "host":
        # Older wheels take one name, newer ones a list.
        if hasattr(params, "hostnames"):
            params.hostnames = [value]
        else:
            params.hostname = value
    elif hasattr(params, name):
        setattr(params, name, value)
    elif name not in _FIELDS_OPTIONAL:
        sys.exit(f"this xllamacpp has no setting {name}")


if __name__ == "__main__":
    main()
