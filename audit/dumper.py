"""The C++ program that writes the raw logits of a llama.cpp source tree: its source, how it is built, asked and read.

In go a source tree and jobs, out come commands, the text of a job, and what its lines say. The program itself is
audit/data/dumper/dump.cpp. Nothing is compared, and no size is taken from a file that was dumped.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from audit.errors import ReplyError, RowsError

__all__ = [
    "CMAKE_OPTIONS",
    "DumpJob",
    "Dumped",
    "build_commands",
    "job_text",
    "read_dump",
    "read_lines",
    "write_sources",
]

_SOURCES = Path(__file__).resolve().parent / "data" / "dumper"
_FOLDER = "determinism-dump"
CMAKE_OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF")
_FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class DumpJob:
    """One capture that the program is asked for; `forced` are the tokens to follow, empty for the most likely ones."""

    name: str
    rows: int
    ids: Sequence[int]
    forced: Sequence[int] = ()


@dataclass
class Dumped:
    """What the program's lines said: libraries, and for each capture its number of rows, vocabulary and tokens."""

    libraries: list[Path] = field(default_factory=list)
    captures: dict[str, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    ended: bool = False


def write_sources(tree: Path) -> None:
    """Write the program's source into a llama.cpp tree."""
    shutil.copytree(_SOURCES, tree / _FOLDER)


def build_commands(side: Path, *, jobs: int) -> str:
    """Return a shell script that builds the program of `side/tree` in `side/build`, with ccache if there is one."""
    launcher = shutil.which("ccache")
    options = list(CMAKE_OPTIONS)
    if launcher is not None:
        options += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    # llama.cpp joins sources by absolute paths; relative ones are found below the side, and in ccache by the other side
    # too.
    return (
        f"cd '{side}'\n"
        f'CXXFLAGS="-I$PWD" cmake -S tree/{_FOLDER} -B build -G Ninja {" ".join(options)}\n'
        "find build -path '*/Unity/*' -name '*.cxx' -exec sed -i \"s|\\\"$PWD/|\\\"|\" {} +\n"
        f"cmake --build build --target {_FOLDER} -j {jobs}\n"
    )


def job_text(
    model: Path, out: Path, jobs: Sequence[DumpJob], *, ctx: int, batch: int, ubatch: int, threads: int, gpu_layers: int
) -> str:
    """Return the job file, words apart by white space.

    Raises: ReplyError where a path holds white space, which the program would read as two words.
    """
    for path in (model, out):
        if len(str(path).split()) != 1:
            raise ReplyError(f"the dumper cannot be told of a path with a space: {path.name!r}")
    lines = [f"model {model}", f"out {out}", f"ctx {ctx} batch {batch} ubatch {ubatch} threads {threads}"]
    lines.append(f"gpu_layers {gpu_layers} swa_full 0")
    for job in jobs:
        ids, forced = (" ".join(map(str, [len(words), *words])) for words in (job.ids, job.forced))
        lines.append(f"capture {job.name} rows {job.rows} prompt {ids} forced {forced}")
    return "\n".join(lines) + "\n"


def read_lines(text: str) -> Dumped:
    """Read what the program wrote on standard output; a line that is cut short counts as not written."""
    dumped = Dumped()
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        word, _, rest = line.strip().partition(" ")
        if word == "library":
            dumped.libraries.append(Path(rest))
        elif word == "capture":
            name, rows, vocabulary, *tokens = rest.split()
            dumped.captures[name] = int(rows), int(vocabulary), tuple(map(int, tokens))
        elif word == "end":
            dumped.ended = True
    return dumped


def read_dump(dumped: Dumped, out: Path, job: DumpJob, *, vocabulary: int) -> NDArray[np.float32]:
    """Read the rows of a capture, shape (rows, vocabulary): sizes come from what was asked and the model's header.

    Raises: RowsError where there are fewer rows than tokens; ReplyError where the dump is missing, of another size, or
    cannot be read.
    """
    if job.name not in dumped.captures:
        raise ReplyError(f"no line says that {job.name} was dumped")
    rows, said, tokens = dumped.captures[job.name]
    if said != vocabulary:
        raise ReplyError(f"{job.name}: the build sees {said} tokens, the model's header has {vocabulary}")
    if len(tokens) != job.rows or rows > job.rows:
        raise ReplyError(f"{job.name}: {rows} rows and {len(tokens)} tokens of {job.rows} asked")
    try:
        data = (out / f"{job.name}.f32").read_bytes()
    except OSError as error:
        raise ReplyError(f"{job.name}: the dump cannot be read: {error.strerror}") from error
    row_bytes = _FLOAT_BYTES * vocabulary
    if rows < len(tokens) or (len(data) < row_bytes * job.rows and len(data) % row_bytes == 0 and data):
        raise RowsError(f"{job.name}: {min(rows, len(data) // row_bytes)} rows for {len(tokens)} tokens")
    if len(data) != row_bytes * job.rows:
        raise ReplyError(f"{job.name}: the dump has {len(data)} bytes, {row_bytes * job.rows} were asked")
    return np.frombuffer(data, dtype="<f4").reshape(job.rows, vocabulary)
