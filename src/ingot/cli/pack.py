"""``ingot pack`` and ``ingot unpack``: files to Bloscpack files and back, in the manner of gzip.

The exit status is gzip's: 0, 1 after an error, 2 after a warning. Messages go to standard error. A
file that could not be packed or unpacked does not keep the next one from it.
"""

import json as json_format
import math
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import numpy as np

import ingot
from ingot import pack as packing
from ingot.cli.arguments import Json
from ingot.cli.columns import align
from ingot.cli.messages import message_of, silence_output, usage, with_notes
from ingot.cli.parameters import Argument, Exit, Option
from ingot.cli.progress import progress_bar
from ingot.errors import (
    CorruptionError,
    ExistsError,
    FormatError,
    IngotError,
    LockedError,
    UnsafeError,
)
from ingot.formats import json as document
from ingot.formats.bloscpack.header import LARGEST_CHUNK
from ingot.options import Options, parse_size
from ingot.pack import Packing, Sizes
from ingot.stores.local.file import FileStore
from ingot.stores.local.files import write_at
from ingot.stores.local.new_file import new_file
from ingot.stores.local.scope import Scope

__all__ = ["pack", "unpack"]

SUFFIX: Final = ".blp"
_PIPE: Final = "-"
_LARGEST: Final = "max"
_DEFAULT: Final = Packing()

Report: TypeAlias = Callable[[int], object] | None
"""What is called with the number of bytes that are done."""

Write: TypeAlias = Callable[[int, int, bool, Report], Sizes]
"""Reads one open file and writes another; the third argument says that it is a new regular file."""

Total: TypeAlias = Callable[[int], int | None]
"""Returns how many bytes there are to do for an open file."""

Files: TypeAlias = Annotated[
    list[str] | None,
    Argument(metavar="[FILE]...", help="Files; - is standard input, which is also the default."),
]
Output: TypeAlias = Annotated[
    str | None,
    Option("-o", "--output", help="The file to write, a folder, or - for standard output."),
]
Force: TypeAlias = Annotated[
    bool, Option("-f", "--force", help="Replace existing files; write to a terminal.")
]
Remove: TypeAlias = Annotated[
    bool, Option("--remove/--keep", help="Remove each file once its result is safe.")
]
Threads: TypeAlias = Annotated[
    int | None, Option("-n", "--threads", min=1, help="Threads; one for each processor.")
]
Sync: TypeAlias = Annotated[
    bool, Option("--sync/--no-sync", help="Wait until the result survives a power cut.")
]
Verbose: TypeAlias = Annotated[
    bool, Option("-v", "--verbose", help="Say what is done, with sizes.")
]


def pack(
    files: Files = None,
    output: Output = None,
    codec: Annotated[
        str, Option("-c", "--codec", help="blosclz, lz4, lz4hc, snappy, zlib or zstd.")
    ] = _DEFAULT.codec,
    level: Annotated[
        int, Option("-l", "--level", help="From 0, stored, to 9, smallest.")
    ] = _DEFAULT.level,
    filter: Annotated[
        str, Option("--filter", help="shuffle, bitshuffle or none.")
    ] = _DEFAULT.filter,
    typesize: Annotated[
        int, Option("-t", "--typesize", help="Bytes of an item, for the filter.")
    ] = _DEFAULT.typesize,
    chunk: Annotated[
        str, Option("-z", "--chunk", help="Bytes of a chunk, such as 512K or 8M, or max.")
    ] = "1M",
    checksum: Annotated[
        str,
        Option(
            "-k",
            "--checksum",
            help="none, adler32, crc32, md5, sha1, sha224, sha256, sha384 or sha512.",
        ),
    ] = _DEFAULT.checksum,
    meta: Annotated[
        Path | None, Option("-m", "--meta", help="A JSON file to store as metadata.")
    ] = None,
    offsets: Annotated[
        bool, Option("--offsets/--no-offsets", help="Store where the chunks lie.")
    ] = _DEFAULT.offsets,
    stream: Annotated[
        bool,
        Option(
            "--stream",
            help="Write in one pass: no offsets, no number of chunks. Only Ingot reads it.",
        ),
    ] = False,
    append: Annotated[
        Path | None,
        Option("-a", "--append", help="A Bloscpack file to append the files to instead."),
    ] = None,
    force: Force = False,
    remove: Remove = False,
    threads: Threads = None,
    sync: Sync = True,
    verbose: Verbose = False,
) -> None:
    """Pack files as Bloscpack files.

    FILE becomes FILE.blp; without files, standard input goes to standard output.
    """
    with usage():
        how = Packing(
            codec=codec,
            level=level,
            filter=filter,
            typesize=typesize,
            chunk_size=_chunk_size(chunk),
            checksum=checksum,
            offsets=offsets,
        )
    run = _Run("pack", force, remove, sync, verbose, Options(threads=threads))

    def name(source: str) -> str:
        if source.endswith(SUFFIX) and not force:
            raise _LeftOut(f"{source} has the suffix {SUFFIX} already: it is left alone")
        return source + SUFFIX

    def write(source: int, target: int, is_file: bool, report: Report) -> Sizes:
        if stream:
            return packing.pack_stream(source, target, how, options=run.options, progress=report)
        into = packing.pack if is_file else packing.pack_spooled
        return into(source, target, how, options=run.options, progress=report)

    def total(source: int) -> int | None:
        facts = os.fstat(source)
        return facts.st_size if stat.S_ISREG(facts.st_mode) else None

    with run.reporting():
        if append is not None:
            if output is not None or meta is not None or stream:
                raise FormatError("--append goes without --output, --meta and --stream")
            run.each(files, lambda source: run.append(source, append))
            return
        if meta is not None:
            value = document.parse(meta.read_bytes(), str(meta), allow_nan=True)
            how = replace(how, metadata=value)
        place = _places(files, output, name)
        if output == _PIPE or (output is None and not files):
            _refuse_terminal(force)
        run.each(files, lambda source: run.convert(source, place(source), write, total))


def unpack(
    files: Files = None,
    output: Output = None,
    list_sizes: Annotated[
        bool, Option("-L", "--list", help="Print sizes, and unpack nothing.")
    ] = False,
    test: Annotated[
        bool, Option("-t", "--test", help="Verify every chunk, and write nothing.")
    ] = False,
    meta: Annotated[
        str | None,
        Option("-m", "--meta", help="A JSON file for the metadata; - prints it."),
    ] = None,
    force: Force = False,
    remove: Remove = False,
    threads: Threads = None,
    sync: Sync = True,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Unpack Bloscpack files.

    FILE.blp becomes FILE; without files, standard input goes to standard output.
    """
    run = _Run("unpack", force, remove, sync, verbose, Options(threads=threads))

    def name(source: str) -> str:
        if os.path.isdir(source):
            raise FormatError(f"{source}: a folder, and no packed file; ingot info says what it is")
        if not source.endswith(SUFFIX) or source == SUFFIX:
            raise FormatError(f"{source} has no suffix {SUFFIX}: name the output by -o")
        return source.removesuffix(SUFFIX)

    def write(source: int, target: int, is_file: bool, report: Report) -> Sizes:
        is_file = is_file and stat.S_ISREG(os.fstat(source).st_mode)
        into = packing.unpack if is_file else packing.unpack_stream
        return into(source, target, options=run.options, progress=report)

    with run.reporting():
        if meta is not None and len(files or ()) != 1:
            raise FormatError("--meta takes the metadata of one file, which is named")
        if list_sizes:
            rows: list[dict[str, Any]] = []
            run.each(files, lambda source: rows.append(run.measure(source)))
            _print_sizes(rows, json)
        elif test:
            run.each(files, run.test)
        else:
            if meta is not None and files:
                # First of all: a file that is removed has no metadata any more.
                _save_metadata(files[0], meta, force)
            place = _places(files, output, name)
            run.each(files, lambda source: run.convert(source, place(source), write, _plain_size))
            return
        if meta is not None and files and run.status != 1:
            _save_metadata(files[0], meta, force)


def _chunk_size(text: str) -> int:
    size = LARGEST_CHUNK if text == _LARGEST else parse_size(text)
    if size is None:
        raise ValueError(f"chunk is {text!r}, not a number of bytes such as 512K or 8M, or max")
    return size


class _LeftOut(Exception):
    """A file is left out, which is no error but a warning."""


@dataclass(slots=True)
class _Run:
    """One call of a command: what it was told, and the exit status so far."""

    command: str
    force: bool
    remove: bool
    sync: bool
    verbose: bool
    options: Options
    status: int = 0
    made: set[str] = field(default_factory=set)
    """The files that this call has made."""

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Run the command; its failures become messages and the exit status."""
        with _terminated_like_interrupted():
            with self._catching(None):
                yield
            with self._catching(None):
                sys.stdout.flush()
        if self.status:
            raise Exit(self.status)

    def each(self, files: list[str] | None, do: Callable[[str], object]) -> None:
        """Do something with each file, whatever becomes of the others."""
        for source in files or [_PIPE]:
            with self._catching(source):
                do(source)

    @contextmanager
    def _catching(self, name: str | None) -> Iterator[None]:
        try:
            yield
        except _LeftOut as warning:
            self._warn(str(warning))
        except BrokenPipeError:
            silence_output()
            self.status = 1
        except (IngotError, OSError, UnicodeError) as error:
            self.status = 1
            self._print(with_notes(message_of(error, name), error))

    def _warn(self, text: str) -> None:
        # An error matters more.
        self.status = self.status or 2
        self._print(text)

    def _print(self, text: str) -> None:
        print(f"ingot {self.command}: {text}", file=sys.stderr)

    def convert(self, source: str, target: str, write: Write, total: Total) -> None:
        """Write the result of one file or pipe."""
        with _reading(source) as file:
            with progress_bar(source, lambda: total(file)) as report:
                is_new = False
                if target == _PIPE or _is_stdout(target):
                    sizes = write(file, sys.stdout.fileno(), False, report)
                elif _is_special(target):
                    with open(target, "wb", buffering=0) as special:
                        sizes = write(file, special.fileno(), False, report)
                else:
                    sizes, is_new = self._create(file, target, write, report), True
            # Only a complete result in a file of its own stands for the source.
            if self.remove and source != _PIPE and is_new and not sizes.behind:
                os.unlink(source)
        self._note_behind(source, sizes)
        if self.verbose:
            before, after = sizes.plain, sizes.packed
            if self.command == "unpack":
                before, after = after, before
            ratio = f"ratio {sizes.ratio:.2f}"
            self._print(f"{source} -> {target}: {before:,} -> {after:,} bytes, {ratio}")

    def _create(self, source: int, target: str, write: Write, report: Report) -> Sizes:
        """Write a new file, which has the mode and the times of the old one."""
        facts = os.fstat(source)
        if os.path.lexists(target):
            if os.path.isdir(target):
                raise ExistsError(f"{target}: a folder of this name exists already")
            if os.path.exists(target) and os.path.samestat(facts, os.stat(target)):
                raise ExistsError(f"{target}: it is the file that is read")
            if not self.force or os.path.realpath(target) in self.made:
                raise ExistsError(f"{target}: the file exists already; --force replaces it")
        with new_file(target) as file:
            sizes = write(source, file.descriptor, True, report)
            if stat.S_ISREG(facts.st_mode):
                os.fchmod(file.descriptor, stat.S_IMODE(facts.st_mode) & 0o777)
                os.utime(file.descriptor, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            with _replacing(target):
                file.publish(overwrite=self.force, durable=self.sync or self.remove)
        self.made.add(os.path.realpath(target))
        return sizes

    def append(self, source: str, target: Path) -> None:
        """Append a file or a pipe to a packed file, in one commit for each window of memory."""
        options = replace(self.options, durability="full" if self.sync else "process")
        with _reading(source) as file, _without_new_lock(str(target)):
            added = self._append_rows(file, source, target, options)
        if self.remove and source != _PIPE:
            os.unlink(source)
        if self.verbose:
            self._print(f"{source} -> {target}: {added:,} bytes are appended")

    def _append_rows(self, file: int, source: str, target: Path, options: Options) -> int:
        """Append an open file; return how many bytes it was."""
        array = ingot.open(target, "r+", format="bloscpack", options=options)
        assert isinstance(array, ingot.Array)
        with array:
            row = array.dtype.itemsize * math.prod(array.shape[1:]) if array.shape else 0
            if not row:
                raise FormatError(f"{target}: nothing can be appended to shape {array.shape}")
            facts, before = os.fstat(file), array.shape[0]
            if os.path.samestat(facts, os.stat(target)):
                raise FormatError(f"{target}: a file is not appended to itself")
            left = facts.st_size % row if stat.S_ISREG(facts.st_mode) else 0
            window = max(1, options.limits.window_bytes // row) * row
            for piece in packing.read_pieces(file, window):
                left = left or len(piece) % row
                if left:
                    if array.shape[0] > before:
                        # All of the source, or nothing: what came before is taken back.
                        array.resize((before, *array.shape[1:]))
                    raise FormatError(
                        f"{source}: {left} bytes are left, rows of {target} have {row}"
                    )
                if piece:
                    rows = np.frombuffer(piece, array.dtype).reshape(-1, *array.shape[1:])
                    array.append(rows)
            return int((array.shape[0] - before) * row)

    def measure(self, source: str) -> dict[str, Any]:
        """Return the sizes of a packed file."""
        with _reading(source) as file:
            if stat.S_ISREG(os.fstat(file).st_mode):
                sizes = packing.read_packed(file).sizes
            else:
                sizes = packing.verify(file, options=self.options)
        self._note_behind(source, sizes)
        return {
            "file": source,
            "packed": sizes.packed,
            "plain": sizes.plain,
            "ratio": round(sizes.ratio, 4),
        }

    def test(self, source: str) -> None:
        """Verify a packed file or pipe."""
        with _reading(source) as file, progress_bar(source, lambda: _plain_size(file)) as report:
            sizes = packing.verify(file, options=self.options, progress=report)
        self._note_behind(source, sizes)
        if self.verbose:
            self._print(f"{source}: OK, {sizes.plain:,} bytes")

    def _note_behind(self, source: str, sizes: Sizes) -> None:
        if sizes.behind:
            self._warn(f"{source}: {sizes.behind:,} bytes behind the end are ignored")


def _control_files(path: str) -> list[str]:
    """Return the paths of the journal and of the lock that a file may have."""
    folder, name = os.path.split(path)
    try:
        scope = Scope.of_file(name)
    except (UnsafeError, UnicodeError):
        return []  # No store takes such a name.
    return [os.path.join(folder, each) for each in (scope.journal, scope.lock)]


@contextmanager
def _replacing(target: str) -> Iterator[None]:
    """Put a file in the place of another one, as the writer of that file if it has a lock.

    A commit that a dead writer decided is finished first: it would change the new file. The lock
    file goes with the old file.
    """
    folder, name = os.path.split(os.path.abspath(target))
    path = os.path.join(os.path.realpath(folder), name)
    # A link is replaced itself, and what it leads to keeps its lock.
    if os.path.islink(path) or not any(map(os.path.lexists, _control_files(path))):
        yield
        return
    with FileStore(path, writable=True).writing() as turn:
        yield
        turn.forget_lock()


@contextmanager
def _without_new_lock(path: str) -> Iterator[None]:
    """Remove the lock file that the block makes beside a file; one that was there before stays."""
    path = os.path.realpath(path)
    *_, lock = "", *_control_files(path)
    existed = os.path.lexists(lock)
    try:
        yield
    finally:
        if not existed and os.path.lexists(lock):
            # A writer that holds it by now still needs it.
            with suppress(LockedError), FileStore(path, writable=True, wait=0).writing() as turn:
                turn.forget_lock()


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let a signal that ends the process clean up first, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, lambda caught, _: sys.exit(128 + caught))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _reading(source: str) -> Iterator[int]:
    """Open a file or standard input."""
    if source == _PIPE:
        yield sys.stdin.fileno()
        return
    if os.path.isdir(source):
        raise _LeftOut(f"{source} is a folder: it is left out")
    journal, *_ = *_control_files(os.path.realpath(source)), ""
    if os.path.lexists(journal):
        raise CorruptionError(
            f"{source}: a writer has not finished; ingot.open(path, 'r+') finishes its commit"
        )
    file = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _places(
    files: list[str] | None, output: str | None, name: Callable[[str], str]
) -> Callable[[str], str]:
    """Return a function that says where the result of a file goes."""
    if output is not None and output != _PIPE and os.path.isdir(output):
        folder = output
        return lambda source: os.path.join(folder, os.path.basename(name(source)))
    if output is not None:
        if len(files or ()) > 1:
            raise FormatError("several files cannot go to one output; name a folder by -o")
        place = output
        return lambda source: place
    return lambda source: _PIPE if source == _PIPE else name(source)


def _refuse_terminal(force: bool) -> None:
    if sys.stdout.isatty() and not force:
        raise FormatError("packed bytes are not written to a terminal; --force does it")


def _is_stdout(path: str) -> bool:
    """Return whether a path leads to standard output, such as /dev/stdout."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError, IngotError):
        return False


def _is_special(path: str) -> bool:
    """Return whether something exists that is neither a file nor a folder, such as a device."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _plain_size(source: int) -> int | None:
    """Return the plain bytes of a packed file; None for a pipe, and where it cannot be told."""
    try:
        is_file = stat.S_ISREG(os.fstat(source).st_mode)
        return packing.read_packed(source).sizes.plain if is_file else None
    except IngotError:
        return None


def _save_metadata(source: str, place: str, force: bool) -> None:
    """Write the metadata of a packed file as JSON, or print it."""
    with _reading(source) as file:
        value = packing.read_packed(file).file.value
    text = json_format.dumps(value, indent=2, ensure_ascii=False) + "\n"
    if not _is_text(text):
        text = json_format.dumps(value, indent=2) + "\n"
    if place == _PIPE:
        print(text, end="")
        return
    if os.path.lexists(place) and not force:
        raise ExistsError(f"{place}: the file exists already; --force replaces it")
    with new_file(place) as file_:
        write_at(file_.descriptor, 0, text.encode())
        with _replacing(place):
            file_.publish(overwrite=force)


def _is_text(text: str) -> bool:
    """Return whether a text can be written as UTF-8: JSON may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _print_sizes(rows: list[dict[str, Any]], json: bool) -> None:
    if json:
        print(json_format.dumps(rows, indent=2))
        return
    cells = [("packed", "plain", "ratio", "file")]
    for row in rows:
        sizes = f"{row['packed']:,}", f"{row['plain']:,}", f"{row['ratio']:.2f}"
        cells.append((*sizes, row["file"]))
    print(align(cells, left=(3,)))
