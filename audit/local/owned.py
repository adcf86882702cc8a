"""Servers that we own: start llama.cpp here, wait until it answers, restart it, stop it, and declare what it is.

In goes a model file and settings, out comes an `OwnedServer` with an address. Everything here is synchronous and waits
for processes, so code on an event loop calls it through `asyncio.to_thread`; any thread may do that, because processes
are started from one thread that lives as long as the program. This module sends no completion, judges no reply, and
knows nothing of plans.
"""

import concurrent.futures
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from audit.errors import ServerError, UsageError
from audit.local.declare import build_name, declare
from audit.local.launch import HOST, LaunchSettings, embedded_fields, server_arguments
from audit.local.models import ModelFile, cache_root
from audit.local.process import free_port, is_port_free, owns_port

__all__ = ["LaunchSettings", "OwnedServer", "start_binary", "start_embedded"]

_CHILD = Path(__file__).with_name("child.py")
# Somebody else may take a free port between our finding it and the server's binding it; twice in a row is bad luck.
_PORT_TRIES = 5
_POLL_SECONDS = 0.02
_HTTP_SECONDS = 5.0
# After SIGTERM llama-server finishes nothing that matters here; this is for a loaded machine.
_GRACE_SECONDS = 5.0
_LOG_LINES = 12

# The kernel sends the parent-death signal when the *thread* that started a child ends, so that thread must not be one
# of an event loop's pool. This one ends with the interpreter.
_SPAWNER = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")


class _PortTakenError(Exception):
    """Somebody else answers on the port that the server was to have."""


class OwnedServer:
    """A llama.cpp server that this process started; a context manager that stops it.

    Args:
        model: the model it serves.
        settings: how it was started.
        binary: the llama-server program, or None for the embedded build.
        port: where it listens, chosen already.
        deadline_s: seconds that a start may take.
        log_dir: where each start leaves one log file.
        environment: all variables of the process; None for those of this one.

    Made by `start_embedded` and `start_binary`, not by hand.
    """

    def __init__(
        self,
        model: ModelFile,
        settings: LaunchSettings,
        *,
        binary: Path | None,
        port: int,
        deadline_s: float,
        log_dir: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.environment = environment
        self.model = model
        self.settings = settings
        self.binary = binary
        self.port = port
        self.deadline_s = deadline_s
        self.log_dir = log_dir
        self.grace_s = _GRACE_SECONDS
        self.start_count = 0
        self.ready_ms = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._aborted = False

    @property
    def url(self) -> str:
        """The address without a trailing slash."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server; raises ServerError when it was stopped."""
        if self._process is None:
            raise ServerError(f"the server of {self.model.name} at {self.url} was stopped")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """The log of the latest start."""
        return self.log_dir / f"{self.model.name}-{self.port}-start{self.start_count}.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def restart(self) -> None:
        """Stop the process and start a new one with the same port and settings; returns when it is ready.

        Raises: ServerError when the new one does not become ready, also when somebody took the port meanwhile.
        """
        self.stop()
        try:
            self._start()
        except _PortTakenError as error:
            raise ServerError(f"port {self.port} was taken while the server restarted") from error

    def stop(self) -> None:
        """End the process and wait for its end: SIGTERM, after a grace SIGKILL. Stopping twice is allowed."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.terminate()
            process.wait(timeout=self.grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            if process.stdin is not None:
                process.stdin.close()

    def abort(self) -> None:
        """End the process for good: one that another thread is starting ends too, and none is started any more."""
        self._aborted = True
        self.stop()

    def declaration(self) -> dict[str, Any]:
        """Say what the operator knows and the server cannot attest: argv, environment, digests, settings.

        Plain JSON values, see `audit.local.declare`.

        Raises: ServerError when the process has ended.
        """
        if not self.is_running:
            raise ServerError(f"the server of {self.model.name} at {self.url} has ended, see {self.log_path}")
        return declare(
            self.model,
            self.settings,
            binary=self.binary,
            pid=self.pid,
            port=self.port,
            environment=self.environment,
        )

    def _start(self) -> None:
        self.start_count += 1
        begin = time.monotonic()
        self._process = _SPAWNER.submit(self._spawn).result()
        try:
            self._wait_ready(self._process, begin + self.deadline_s)
            self._confirm()
        except BaseException:
            # Also on Ctrl-C while waiting: nobody would have a handle to stop it by.
            self.stop()
            raise
        self.ready_ms = (time.monotonic() - begin) * 1000

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        name, model_folder = self.model.path.name, self.model.path.parent
        environment = dict(os.environ if self.environment is None else self.environment)
        order: dict[str, Any] = {"parent_pid": os.getpid(), "folder": str(model_folder), "binary": None}
        if self.binary is None:
            order["fields"] = embedded_fields(name, self.settings, port=self.port)
        else:
            order["binary"] = str(self.binary)
            order["arguments"] = server_arguments(name, self.settings, port=self.port)
            # A downloaded build brings its shared objects beside the program.
            places = [str(self.binary.parent), environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(place for place in places if place)
        with self.log_path.open("wb") as log:
            # A session of its own: Ctrl-C on the terminal reaches us alone, and we decide what becomes of the server.
            process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        assert process.stdin is not None  # noqa: S101 - it is what PIPE means, and mypy cannot see it
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            # The child died at once; waiting for readiness finds that and shows its log.
            pass
        return process

    def _wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        while process.poll() is None:
            if self._aborted:
                raise ServerError(f"the server of {self.model.name} was stopped while it started")
            if self._get("/health")[0] == http.client.OK:
                if owns_port(process.pid, self.port) is False:
                    raise _PortTakenError
                return
            if time.monotonic() > deadline:
                raise ServerError(
                    f"the server of {self.model.name} was not ready after {self.deadline_s:g} s", hint=self._log_tail()
                )
            time.sleep(_POLL_SECONDS)
        if not is_port_free(HOST, self.port):
            raise _PortTakenError
        raise ServerError(
            f"the server of {self.model.name} {_ending(process.returncode)} while it started", hint=self._log_tail()
        )

    def _confirm(self) -> None:
        """Compare what the server attests with what was asked, so that no swapped or misread setting goes on."""
        status, body = self._get("/props")
        props = json.loads(body) if status == http.client.OK else {}
        found = (props.get("model_path"), props.get("total_slots"))
        wanted = (self.model.path.name, self.settings.slots)
        if found != wanted:
            raise ServerError(
                f"the server that we started at {self.url} says model and slots {found}, not {wanted}",
                hint=self._log_tail(),
            )

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=_HTTP_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            # Not listening yet, or busy: status 0 stands for no answer.
            return 0, b""
        finally:
            connection.close()

    def _log_tail(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"the log {self.log_path} ends with:", *lines])


def start_embedded(
    model: ModelFile,
    settings: LaunchSettings | None = None,
    *,
    port: int = 0,
    deadline_s: float = 120.0,
    log_dir: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> OwnedServer:
    """Start the embedded build (xllamacpp) in a child process and wait until it is ready.

    Args:
        model: what to serve.
        settings: None for those of an audit.
        port: 0 picks a free one.
        deadline_s: seconds until readiness, > 0.
        log_dir: None for `logs/` in the cache.
        environment: all variables of the process, for instance with a PYTHONPATH that has another xllamacpp; None for
            those of this one.

    Raises: UsageError when the port is in use, settings do not fit, or xllamacpp is missing; ServerError when the
        server does not become ready, with the end of its log as the hint.
    """
    settings = settings or LaunchSettings()
    if settings.extra_args:
        raise UsageError(f"extra_args {list(settings.extra_args)} are for a binary; the embedded build takes none")
    if environment is None:
        build_name(None)
    return _start_server(
        model, settings, binary=None, port=port, deadline_s=deadline_s, log_dir=log_dir, environment=environment
    )


def start_binary(
    binary: Path,
    model: ModelFile,
    settings: LaunchSettings | None = None,
    *,
    port: int = 0,
    deadline_s: float = 120.0,
    log_dir: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> OwnedServer:
    """Start a llama-server program and wait until it is ready; otherwise like `start_embedded`.

    A flag that this build does not know ends it at once: ServerError, its own words in the hint.
    """
    chosen = settings or LaunchSettings()
    path = binary.absolute()
    return _start_server(
        model, chosen, binary=path, port=port, deadline_s=deadline_s, log_dir=log_dir, environment=environment
    )


def _start_server(
    model: ModelFile,
    settings: LaunchSettings,
    *,
    binary: Path | None,
    port: int,
    deadline_s: float,
    log_dir: Path | None,
    environment: Mapping[str, str] | None,
) -> OwnedServer:
    if port and not is_port_free(HOST, port):
        raise UsageError(f"port {port} is in use", hint="choose another, or 0 for any free one")
    folder = (log_dir or cache_root() / "logs").absolute()
    for _ in range(1 if port else _PORT_TRIES):
        chosen = port or free_port(HOST)
        server = OwnedServer(
            model, settings, binary=binary, port=chosen, deadline_s=deadline_s, log_dir=folder, environment=environment
        )
        try:
            server._start()  # noqa: SLF001 - the constructor's other half, kept apart so that a lost race can retry
        except _PortTakenError:
            continue
        return server
    raise ServerError(f"the port for the server of {model.name} was taken by somebody else each time we chose one")


def _ending(code: int) -> str:
    if code == -signal.SIGILL:
        # A build for another processor: it may serve one quantization and die of the next.
        return "was ended by SIGILL (an instruction that this processor lacks: this build cannot run this model here)"
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
