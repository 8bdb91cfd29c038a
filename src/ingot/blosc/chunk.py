"""The functions of ``ingot.blosc`` that encode and decode one chunk.

They check their arguments and call the kernel in use (``ingot.native``).
"""

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from ingot import native
from ingot.blosc import header, special
from ingot.blosc.header import HEADER_BYTES, LARGEST_BLOCK, LARGEST_CHUNK
from ingot.errors import ArgumentError, ArgumentTypeError, LimitError, UnsupportedError

if TYPE_CHECKING:
    from ingot.blosc.header import BytesLike

__all__ = [
    "CODECS",
    "FILTERS",
    "FILTERS_2",
    "LARGEST",
    "Filter",
    "compress",
    "constant",
    "decompress",
    "decompress_slice",
]

CODECS = tuple(header.CODECS)
"""The codecs of ``compress``; all of them are decoded as well."""

FILTERS = ("shuffle", "bitshuffle")
"""The filters that a Blosc-1 chunk can have, one at a time."""

FILTERS_2 = ("shuffle", "bitshuffle", "delta", "truncate", "bytedelta")
"""The filters that a Blosc-2 chunk can have, up to six in a row."""

# C-Blosc2 mixes up its buffers when delta follows this position in a pipeline.
_LAST_DELTA = 2
_DICTIONARY_CODECS = ("lz4", "lz4hc", "zstd")

Filter: TypeAlias = str | tuple[str, int]
"""A filter by its name, or by its name and its parameter."""

LARGEST = LARGEST_CHUNK - HEADER_BYTES
"""The most bytes that one chunk can hold."""

# The kernel, once it is chosen: the functions below run millions of times, and
# finding the kernel each time would cost more than decoding a small chunk.
_kernel: native.Kernel | None = None


@overload
def decompress(
    chunk: "BytesLike", out: None = None, *, threads: int = 1, limit: int = LARGEST_CHUNK
) -> bytes: ...
@overload
def decompress(
    chunk: "BytesLike", out: "BytesLike", *, threads: int = 1, limit: int = LARGEST_CHUNK
) -> int: ...
def decompress(
    chunk: Any,
    out: Any = None,
    *,
    threads: int = 1,
    limit: int = LARGEST_CHUNK,
) -> bytes | int:
    """Decode a whole chunk.

    Without ``out`` the data are returned as bytes. With it they are written to the start of that
    buffer, which must be writable, C-contiguous and large enough (otherwise ``ValueError`` is
    raised before anything is written), and their number is returned. A chunk that holds more than
    ``limit`` bytes raises ``LimitError``. ``threads`` is how many threads may share the work.

    >>> chunk = compress(b"spam" * 1000)
    >>> decompress(chunk) == b"spam" * 1000
    True
    >>> buffer = bytearray(5000)
    >>> decompress(chunk, buffer), bytes(buffer[:8])
    (4000, b'spamspam')
    """
    return (_kernel or _load_kernel()).decompress(chunk, out, threads, limit)


@overload
def decompress_slice(
    chunk: "BytesLike", start: int, stop: int, out: None = None, *, limit: int = LARGEST_CHUNK
) -> bytes: ...
@overload
def decompress_slice(
    chunk: "BytesLike", start: int, stop: int, out: "BytesLike", *, limit: int = LARGEST_CHUNK
) -> int: ...
def decompress_slice(
    chunk: Any,
    start: int,
    stop: int,
    out: Any = None,
    *,
    limit: int = LARGEST_CHUNK,
) -> bytes | int:
    """Decode items ``start`` to ``stop``, reading only the blocks that hold them.

    An item has the chunk's typesize. ``out`` and ``limit`` are those of ``decompress``; the limit
    applies to the whole chunk. A range that does not lie in the chunk raises ``SelectionError``:
    negative positions do not count from the end, and ranges are not clipped.

    >>> chunk = compress(np.arange(1000), typesize=8)
    >>> np.frombuffer(decompress_slice(chunk, 500, 503), np.int64)
    array([500, 501, 502])
    """
    return (_kernel or _load_kernel()).decompress_slice(chunk, start, stop, out, limit)


def compress(
    data: "BytesLike",
    *,
    typesize: int | None = 1,
    codec: str = "lz4",
    level: int = 5,
    filters: Sequence[Filter] = ("shuffle",),
    version: Literal[1, 2] = 1,
    blocksize: int | None = None,
    split: Literal["auto", "always", "never"] = "auto",
    dictionary: "BytesLike | Literal['train'] | None" = None,
    threads: int = 1,
) -> bytes:
    """Encode ``data``, any C-contiguous buffer, into one chunk.

    ``typesize`` is the size of an item, the unit of filters and slices; ``None`` takes that of the
    buffer. ``level`` runs from 0, stored, to 9, densest. ``blocksize`` is the size of the blocks,
    which are encoded and decoded independently; ``None`` takes 128 KiB (up to 512 in split blocks
    of version 2), rounded down to whole items, which suits small reads. Data that do not get
    smaller are stored as they are, 16 bytes longer, or 32.

    ``version`` is that of the Blosc format. Version 1 is read by all libraries; ``filters`` is
    empty or names one of ``FILTERS``. Version 2 takes up to six of ``FILTERS_2``, which are applied
    in the order given: ``("truncate", bits)`` keeps that many bits of each mantissa and loses the
    others. Version 2 also stores data that are all zeros, NaN or one repeated item in a few bytes,
    and can use a ``dictionary``: up to 32 KiB that blocks have in common, for LZ4 and Zstandard.
    With ``"train"`` the kernel learns one from the data, if it can. ``split`` says whether each
    byte of the items gets a stream of its own.

    >>> from ingot.blosc import ChunkHeader
    >>> chunk = compress(np.arange(100_000), typesize=None, codec="zstd", filters=["bitshuffle"])
    >>> header = ChunkHeader.parse(chunk)
    >>> header.typesize, header.codec, header.filter, header.nbytes
    (8, 'zstd', 'bitshuffle', 800000)
    >>> times = np.arange("2026-01-01", "2026-01-08", 1, "datetime64[s]")
    >>> chunk = compress(times.view("i8"), typesize=8, filters=["delta", "shuffle"], version=2)
    >>> header = ChunkHeader.parse(chunk)
    >>> header.version, header.pipeline, header.nbytes // header.cbytes > 5
    (5, ((3, 0), (1, 0)), True)
    >>> np.frombuffer(decompress_slice(chunk, 86_400, 86_402), times.dtype)
    array(['2026-01-02T00:00:00', '2026-01-02T00:00:01'],
          dtype='datetime64[s]')
    >>> len(compress(np.full(10**6, np.nan), typesize=8, version=2))
    32
    >>> rounded = compress(np.full(9, 0.1), typesize=8, filters=[("truncate", 8)], version=2)
    >>> float(np.frombuffer(decompress(rounded))[0])
    0.099853515625
    >>> compress(b"spam", codec="lzma")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: codec is 'lzma', known are blosclz, lz4, lz4hc, snappy, zlib, zstd
    """
    _check_version(version, codec, split, dictionary)
    if codec not in CODECS:
        raise ArgumentError(f"codec is {codec!r}, known are {', '.join(CODECS)}")
    if isinstance(filters, str):
        raise ArgumentTypeError(
            f"filters is the string {filters!r}, it must be a sequence of names"
        )
    raw = _flatten(data)
    item = (
        _item_size(data) if typesize is None else _integer("typesize", typesize, 1, LARGEST_CHUNK)
    )
    size = 0 if blocksize is None else _integer("blocksize", blocksize, 1, LARGEST_BLOCK)
    degree = _integer("level", level, 0, 9)
    kernel = _kernel or _load_kernel()
    if version == 1:
        return kernel.compress(raw, item, codec, degree, _only_filter(filters), size, threads)
    steps = _number_filters(filters, item)
    known: Any = None
    if isinstance(dictionary, str):
        known = kernel.train_dictionary(raw, item, codec, degree, steps, size, split) or None
    elif dictionary is not None:
        known = _flatten(dictionary)
    return kernel.compress2(raw, item, codec, degree, steps, size, split, known, threads)


def constant(value: "BytesLike | np.generic", nbytes: int) -> bytes:
    """Return a Blosc-2 chunk of ``nbytes`` bytes that repeats ``value``.

    The chunk is a header and at most one value, whatever its decoded size. Zeros and NaN (the quiet
    NaN of NumPy) are stored without a value.

    >>> from ingot.blosc import ChunkHeader
    >>> chunk = constant(np.float32(1.5), 4_000_000)
    >>> len(chunk), ChunkHeader.parse(chunk).typesize, ChunkHeader.parse(chunk).special
    (36, 4, 'value')
    >>> len(constant(b"\\0", 2**31 - 1)), ChunkHeader.parse(constant(np.nan, 800)).special
    (32, 'nan')
    >>> constant(b"spam", 6)
    Traceback (most recent call last):
    ingot.errors.ArgumentError: nbytes is 6, no whole number of values of 4 bytes
    """
    item = np.asarray(value) if isinstance(value, float | np.generic) else value
    raw = _flatten(item)
    total = _integer("nbytes", nbytes, 0, LARGEST_CHUNK)
    if not raw.size:
        raise ArgumentError("value has no bytes")
    if total % raw.size:
        raise ArgumentError(f"nbytes is {total}, no whole number of values of {raw.size} bytes")
    kind = special.find(raw, raw.size) or "value"
    return special.pack(kind, total, raw.size if raw.size <= 255 else 1, raw.tobytes())


def _load_kernel() -> native.Kernel:
    global _kernel
    _kernel = native.kernel()
    return _kernel


def _check_version(version: int, codec: str, split: str, dictionary: object) -> None:
    if version not in (1, 2):
        raise ArgumentError(f"version is {version!r}, known are 1 and 2")
    if version == 1 and dictionary is not None:
        raise UnsupportedError("Blosc 1 chunks have no dictionary")
    if version == 1 and split != "auto":
        raise UnsupportedError("Blosc 1 chunks are split by a rule, not by choice")
    if version == 2 and codec == "snappy":
        raise UnsupportedError("Blosc 2 has no Snappy; Blosc 1 (version=1) has")
    if isinstance(dictionary, str) and dictionary != "train":
        raise ArgumentError(f"dictionary is {dictionary!r}, it must be 'train' or bytes")
    if dictionary is not None and codec not in _DICTIONARY_CODECS:
        raise ArgumentError(f"{codec} uses no dictionary, {', '.join(_DICTIONARY_CODECS)} do")


def _only_filter(filters: Sequence[Filter]) -> str:
    """Return the kernel's name for the one filter of a Blosc-1 chunk."""
    if not filters:
        return "none"
    for name in filters:
        if name not in FILTERS:
            raise ArgumentError(
                f"filter {name!r} is unknown to Blosc 1, known are {', '.join(FILTERS)}"
            )
    if len(filters) > 1:
        raise ArgumentError(f"Blosc 1 chunks have one filter at most, {len(filters)} are given")
    return str(filters[0])


def _number_filters(filters: Sequence[Filter], typesize: int) -> list[tuple[int, int]]:
    """Return the filters of a Blosc-2 chunk as numbers with metadata."""
    steps = [_number_filter(step, typesize) for step in filters]
    deltas = [at for at, (number, _) in enumerate(steps) if header.FILTERS[number] == "delta"]
    if len(deltas) > 1 or any(at > _LAST_DELTA for at in deltas):
        raise ArgumentError(
            "delta can be used once, as one of the first three filters: "
            "C-Blosc2 reads anything else back wrong"
        )
    return steps


def _number_filter(step: Filter, typesize: int) -> tuple[int, int]:
    """Return a filter of a Blosc-2 chunk as its number and its metadata."""
    name, meta = (step, 0) if isinstance(step, str) else step
    if name not in FILTERS_2:
        raise ArgumentError(
            f"filter {name!r} is unknown to Blosc 2, known are {', '.join(FILTERS_2)}"
        )
    if isinstance(step, str) and name == "truncate":
        raise ArgumentError("truncate needs the number of bits to keep: ('truncate', bits)")
    if name == "bytedelta" and not meta:
        # Without it readers cannot derive the number of planes from the chunk.
        meta = typesize if typesize <= 255 else 1
    numbers = {known: number for number, known in header.FILTERS.items()}
    return numbers[name], _integer(f"metadata of {name}", meta, 0, 255)


def _integer(name: str, value: int, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {value!r}, it must be an integer") from None
    if not least <= number <= most:
        raise ArgumentError(f"{name} is {number}, it lies in {least}..{most}")
    return number


def _flatten(data: Any) -> Any:
    """Return the bytes of ``data`` as one flat buffer, without copying them."""
    if isinstance(data, np.ndarray) and data.dtype.hasobject:
        raise ArgumentTypeError("an array of Python objects holds addresses, not data")
    try:
        raw = np.frombuffer(data, np.uint8)
    except TypeError:
        raise ArgumentTypeError(f"data is {type(data).__name__}, it must be a buffer") from None
    except (ValueError, BufferError):
        raise ArgumentError(
            "data must be C-contiguous; copy it with numpy.ascontiguousarray"
        ) from None
    if raw.size > LARGEST:
        raise LimitError(f"data has {raw.size} bytes, a chunk holds at most {LARGEST}")
    return raw


def _item_size(data: "BytesLike") -> int:
    """Return the size of one item; NumPy's dates have a size, but no buffer format."""
    return max(data.itemsize if isinstance(data, np.ndarray) else memoryview(data).itemsize, 1)
