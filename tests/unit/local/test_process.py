"""What the operating system says: digests, ports, listeners, libraries."""

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from audit.local.process import (
    environment_present,
    file_sha256,
    free_port,
    is_port_free,
    mapped_libraries,
    memory_bytes_max,
    owns_port,
)

HOST = "127.0.0.1"


def test_a_changed_file_has_a_changed_digest(tmp_path: Path) -> None:
    """The digest that was read once is not told of a file that changed since."""
    path = tmp_path / "f"
    path.write_bytes(b"one")
    assert file_sha256(path) == file_sha256(path) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"three")
    assert file_sha256(path) == hashlib.sha256(b"three").hexdigest()


def test_a_port_in_use_is_not_free() -> None:
    """A free port can be bound; while somebody listens on it, it is not free."""
    port = free_port(HOST)
    assert is_port_free(HOST, port)
    with socket.create_server((HOST, port)):
        assert not is_port_free(HOST, port)
    assert is_port_free(HOST, port)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_listener_on_a_port_is_known() -> None:
    """This process owns the port that it listens on, its parent does not, and nobody owns a silent one."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert owns_port(os.getpid(), port) is True
        assert owns_port(os.getpid(), free_port(HOST)) is False


def test_elsewhere_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not tell, the answer is None and never False or empty."""
    monkeypatch.setattr("audit.local.process._HAS_PROC", False)
    assert owns_port(os.getpid(), 1) is None
    assert mapped_libraries(os.getpid()) is None


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("libllama.so", True),
        ("libllama-server-impl.so", True),
        ("libggml-cpu.so.0.20.0", True),
        ("libggml.so.0", True),
        ("libm.so.6", True),
        ("xllamacpp.abi3.so", True),
        ("libc.so.6", False),
        ("libmvec.so.1", False),
        ("libllama.so.bak", False),
        ("notlibllama.so", False),
    ],
)
def test_the_libraries_with_arithmetic_are_told_apart(name: str, counts: bool) -> None:
    """llama, ggml, libm and the embedded module count; their namesakes do not."""
    from audit.local.process import _LIBRARY

    assert bool(_LIBRARY.fullmatch(name)) is counts


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_mapped_libraries_are_files_in_order() -> None:
    """Whatever this process has mapped, the list is sorted by name and names existing files."""
    found = mapped_libraries(os.getpid())
    assert found is not None
    assert [path.name for path in found] == sorted(path.name for path in found)
    assert all(path.is_file() for path in found)


def test_environment_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of the three families, sorted, also of an empty variable; no value and no other variable."""
    for name in environment_present():
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("LLAMA_ARG_FLASH_ATTN", "")
    monkeypatch.setenv("GGML_SECRET", "hidden")
    monkeypatch.setenv("MY_LLAMA_X", "no")
    assert environment_present() == ["GGML_SECRET", "LLAMA_ARG_FLASH_ATTN", "OMP_NUM_THREADS"]


def test_the_environment_of_another_process_is_named_by_what_it_was_given() -> None:
    """Names only, whatever this process has set itself."""
    assert environment_present({"GGML_X": "secret", "PATH": "/bin"}) == ["GGML_X"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_memory_that_was_given_back_still_counts() -> None:
    """It is the largest that was ever resident, of any process of ours."""
    code = "held = b'x' * (96 << 20); del held; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = memory_bytes_max(process.pid)
        resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        process.communicate(b"\n")
    assert found is not None
    assert found > 96 << 20 > resident
