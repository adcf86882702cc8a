"""A run that did not end, taken up again: locked, looked at, cleaned of what no line names, and written on.

In goes the folder, out come its manifest, its order, its whole lines, and a writer that goes on behind them. What of a
plan is finished is not decided here, and no server is asked. docs/reference/record.md has the rules.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from audit.errors import EvidenceError, UsageError
from audit.files import PARTIAL
from audit.history import HISTORY, History
from audit.order import Order
from audit.record import Attested, Complete, End, Invoke, Line, ServerLine, Snapshot
from audit.store import DERIVED_SUMS, STORES, SUMS, Run, RunWriter
from audit.stream import digest

__all__ = ["Unsealed", "refuse_finished"]

_TOP = {"manifest.json", "plan.json", HISTORY, "registration", *STORES}


def refuse_finished(folder: Path) -> None:
    """Refuse a folder that holds no run, a sealed one, or one that never began.

    Raises: UsageError.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder of a run", hint="give the folder that `run` named")
    if (folder / SUMS).exists():
        raise UsageError(f"{folder} is sealed, so nothing is left to do", hint=f"determinism report {folder}")
    if not (folder / "manifest.json").is_file():
        raise UsageError(
            f"{folder} never began: it holds no manifest.json, and nothing was sent",
            hint="remove it and give the whole command again, without --resume",
        )


class Unsealed:
    """One unsealed run folder, locked for this process until `close`.

    Raises: UsageError where it is no run, is sealed, never began, or another process writes it; EvidenceError where
        its files contradict each other or lead elsewhere.
    """

    def __init__(self, folder: Path) -> None:
        refuse_finished(folder)
        self.folder = folder
        self.history = History.take_up(folder)
        try:
            self._refuse_strangers()
            self.run = Run.open(folder)
            self.order = self._order()
        except BaseException:
            self.history.close()
            raise

    def _refuse_strangers(self) -> None:
        """Refuse links, which could lead out of the folder, and what no run writes."""
        for path in self.folder.rglob("*"):
            if path.is_symlink():
                raise EvidenceError(f"{path} is a link, and a run holds none", hint="remove it")
            if path.parent == self.folder and path.name not in _TOP and not path.name.endswith(PARTIAL):
                derived = path.name == DERIVED_SUMS
                raise EvidenceError(f"{path} is {'derived from' if derived else 'no file of'} an unsealed run")

    def _order(self) -> Order:
        """Return plan and registration as the run began with them."""
        manifest, files = self.run.manifest, self.run.registration()
        if manifest.kind != "audit":
            raise UsageError(f"{self.folder} is of kind {manifest.kind}, and only an audit is resumed")
        missing = sorted(set(manifest.registration.files) - set(files)) if manifest.registration else []
        if missing:
            raise EvidenceError(f"{self.folder}/registration lacks {missing[0]}")
        return Order(
            plan=self.run.plan, registered=manifest.registered, registration=manifest.registration, files=files
        )

    def lines(self) -> Iterator[Line]:
        """Yield the whole lines, each checked against the one before.

        Raises: EvidenceError.
        """
        return self.run.lines(cut=True)

    @property
    def ended(self) -> bool:
        """Whether the run did all that it was asked to, and only the seal is missing."""
        return any(isinstance(line, End) for line in deque(self.lines(), maxlen=1))

    def write_on(self, *, process: int) -> RunWriter:
        """Clean the store and return a writer, which has said with its first line that the run is taken up.

        Args:
            process: the number of this process; 0 where the history has no line, so that the run begins only now.

        Raises: EvidenceError where a stored file that the record names is missing or holds other bytes; UsageError
            where nothing can be written.
        """
        writer = self.sealer()
        writer.go_on(self.run.manifest, process=process)
        return writer

    def sealer(self) -> RunWriter:
        """Clean the store and return a writer that writes no line by itself."""
        self._clean()
        return RunWriter(self.folder, self.history)

    def _clean(self) -> None:
        """Check what the record names, and remove half-written files and others whose bytes are not their name's.

        A whole file that no line names stays: it was stored, and its process ended before it could say so.
        """
        named = self._named()
        try:
            for partial in self.folder.rglob("*" + PARTIAL):
                partial.unlink()
            for kind, suffix in STORES.items():
                for path in (self.folder / kind).glob("*"):
                    if path.name == digest(path.read_bytes()).removeprefix("sha256:") + suffix:
                        named.discard(path.name.removesuffix(suffix))
                    elif path.name.removesuffix(suffix) not in named:
                        path.unlink()
                    else:
                        raise EvidenceError(f"{path} holds other bytes than its name says, and a line names it")
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be written: {error.strerror}") from error
        if named:
            raise EvidenceError(f"{self.folder}: the record names sha256:{min(named)}, and no such file is stored")

    def _named(self) -> set[str]:
        """Return the hex digits of every stored file that manifest and history name."""
        manifest = self.run.manifest
        named = {name for prompts in manifest.prompts.values() for name in prompts.values()}
        for entry in manifest.servers:
            named |= {*_of_server(entry.attested, entry.declaration)}
        for line in self.lines():
            named |= {name for name in _stored(line) if name is not None}
        return {name.removeprefix("sha256:") for name in named}

    def close(self) -> None:
        """Unlock the folder."""
        self.history.close()


def _of_server(attested: Attested, declaration: str | None) -> Iterator[str]:
    yield from (name for name in (attested.props, attested.models, declaration) if name is not None)


def _stored(line: Line) -> Iterator[str | None]:
    """Yield the digests of the stored files that a line names."""
    match line:
        case ServerLine():
            yield from _of_server(line.attested, line.declaration)
        case Snapshot():
            yield line.props
        case Invoke():
            yield line.request
        case Complete(failure=failure, reply=reply):
            yield failure.body if failure is not None else None
            if reply is not None:
                yield from (reply.logprob, reply.settings)
                yield reply.rows.file if reply.rows is not None else None
                yield reply.joined.logprob if reply.joined is not None else None
