"""Files and pipes are packed and unpacked on both kernels, and damage is noticed."""

import hashlib
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import native, pack
from ingot.errors import CorruptionError, IngotError, LimitError
from ingot.formats.bloscpack.header import CHECKSUMS, HEADER_BYTES, Header
from ingot.options import Limits, Options
from ingot.pack import Packing, Sizes
from tests.limited import run_limited

CHUNK = 3000
SIZES = (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 7 * CHUNK + 5)
OPTIONS = Options(threads=3)

pytestmark = pytest.mark.usefixtures("kernel")


def sample(size: int) -> bytes:
    """Return bytes of which only some are alike."""
    return np.sqrt(np.arange(size // 8 + 1) * 1000).astype("<f8").tobytes()[:size]


def packed_bytes(folder: Path, data: bytes, packing: Packing) -> bytes:
    source, target = folder / "source", folder / "target"
    source.write_bytes(data)
    target.unlink(missing_ok=True)
    with opened(source, os.O_RDONLY) as read, opened(target, os.O_RDWR | os.O_CREAT) as write:
        sizes = pack.pack(read, write, packing, options=OPTIONS)
    stored = target.read_bytes()
    assert sizes == Sizes(len(stored), len(data))
    return stored


def unpacked(folder: Path, stored: bytes) -> tuple[bytes, Sizes]:
    source, target = folder / "stored", folder / "plain"
    source.write_bytes(stored)
    target.unlink(missing_ok=True)
    with opened(source, os.O_RDONLY) as read, opened(target, os.O_RDWR | os.O_CREAT) as write:
        sizes = pack.unpack(read, write, options=OPTIONS)
    return target.read_bytes(), sizes


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def through_pipes(data: bytes, do: Callable[[int, int], Sizes]) -> tuple[bytes, Sizes]:
    """Return what comes out of a pipe when `data` goes into another."""
    (source, feed), (drain, target) = os.pipe(), os.pipe()
    out: list[bytes] = []

    def write() -> None:
        with open(feed, "wb") as file:
            file.write(data)

    def read() -> None:
        with open(drain, "rb") as file:
            out.append(file.read())

    threads = [threading.Thread(target=work) for work in (write, read)]
    for thread in threads:
        thread.start()
    try:
        sizes = do(source, target)
    finally:
        os.close(target)
        while os.read(source, 1 << 16):
            pass
        os.close(source)
        for thread in threads:
            thread.join()
    return out[0], sizes


def from_pipe(data: bytes, do: Callable[[int], Sizes]) -> Sizes:
    """Return what a function returns that reads `data` from a pipe."""
    return through_pipes(data, lambda source, _: do(source))[1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("checksum", ["none", "crc32", "sha256"])
def test_files_come_back(tmp_path, size, checksum):
    data = sample(size)
    stored = packed_bytes(tmp_path, data, Packing(chunk_size=CHUNK, checksum=checksum))
    header = Header.parse(stored, len(stored))
    count = max(1, -(-size // CHUNK))
    assert (header.nchunks, header.max_app_chunks) == (count, 10 * count)
    assert (header.chunk_size, header.payload) == (CHUNK, size)
    assert unpacked(tmp_path, stored) == (data, Sizes(len(stored), size))


@pytest.mark.parametrize("codec", ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"])
@pytest.mark.parametrize("filter", ["none", "shuffle", "bitshuffle"])
def test_every_codec_and_filter(tmp_path, codec, filter):
    data = sample(3 * CHUNK + 11)
    packing = Packing(codec=codec, filter=filter, level=3, typesize=8, chunk_size=CHUNK)
    stored = packed_bytes(tmp_path, data, packing)
    assert len(stored) < len(data) + 600
    assert unpacked(tmp_path, stored)[0] == data


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_digests_are_those_of_the_standard_library(tmp_path, checksum):
    stored = packed_bytes(tmp_path, sample(500), Packing(checksum=checksum, offsets=False))
    end = HEADER_BYTES + int.from_bytes(stored[HEADER_BYTES + 12 :][:4], "little")
    chunk, digest = stored[HEADER_BYTES:end], stored[end:]
    if checksum in ("adler32", "crc32"):
        assert digest == getattr(zlib, checksum)(chunk).to_bytes(4, "little")
    elif checksum == "none":
        assert digest == b""
    else:
        assert digest == hashlib.new(checksum, chunk).digest()


def test_threads_do_not_change_the_bytes(tmp_path):
    data = sample(50 * CHUNK + 1)
    source = tmp_path / "source"
    source.write_bytes(data)
    found = []
    for threads in (1, 4):
        target = tmp_path / f"target{threads}"
        with opened(source, os.O_RDONLY) as read, opened(target, os.O_RDWR | os.O_CREAT) as write:
            packing = Packing(chunk_size=CHUNK)
            pack.pack(read, write, packing, options=Options(threads=threads))
        found.append(target.read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("size", SIZES)
def test_a_pipe_gives_the_same_file_as_a_file(tmp_path, size):
    data, packing = sample(size), Packing(chunk_size=CHUNK, metadata={"a": [1, None]})
    target = tmp_path / "target"
    with opened(target, os.O_RDWR | os.O_CREAT) as write:
        sizes = from_pipe(data, lambda source: pack.pack(source, write, packing, options=OPTIONS))
    assert target.read_bytes() == packed_bytes(tmp_path, data, packing)
    assert sizes == Sizes(target.stat().st_size, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("into", [pack.pack_spooled, pack.pack_stream])
def test_pipes_come_back(size, into):
    data, packing = sample(size), Packing(chunk_size=CHUNK, checksum="md5")
    stored, sizes = through_pipes(
        data, lambda source, target: into(source, target, packing, options=OPTIONS)
    )
    assert sizes == Sizes(len(stored), size)
    assert through_pipes(
        stored, lambda source, target: pack.unpack_stream(source, target, options=OPTIONS)
    ) == (data, sizes)


def test_a_stream_has_no_offsets_and_is_read_as_a_file_too(tmp_path):
    data = sample(2 * CHUNK + 1)
    packing = Packing(chunk_size=CHUNK, metadata="text")
    stored, _ = through_pipes(data, lambda read, write: pack.pack_stream(read, write, packing))
    header = Header.parse(stored)
    assert (header.nchunks, header.last_chunk, header.has_offsets) == (-1, -1, False)
    assert unpacked(tmp_path, stored) == (data, Sizes(len(stored), len(data)))


def test_metadata_is_stored(tmp_path):
    metadata = {"name": "Æ", "list": [1, 2.5, None], "deep": {"x": True}}
    stored = packed_bytes(tmp_path, b"abc", Packing(metadata=metadata))
    (tmp_path / "stored").write_bytes(stored)
    with opened(tmp_path / "stored", os.O_RDONLY) as file:
        assert pack.read_packed(file).file.value == metadata
    assert unpacked(tmp_path, stored)[0] == b"abc"


def test_progress_is_told(tmp_path, kernel):
    data, told = sample(6 * CHUNK), []
    (tmp_path / "source").write_bytes(data)
    with (
        opened(tmp_path / "source", os.O_RDONLY) as read,
        opened(tmp_path / "target", os.O_RDWR | os.O_CREAT) as write,
    ):
        packing = Packing(chunk_size=CHUNK)
        pack.pack(read, write, packing, options=Options(threads=1), progress=told.append)
    # The kernel reports now and then, which a short call may never reach.
    assert told == sorted(told)
    assert kernel == "native" or told[-1] == len(data)


def test_what_progress_raises_ends_the_work_of_a_pipe():
    def stop(done: int) -> None:
        raise KeyError(done)

    packing = Packing(chunk_size=CHUNK)
    with pytest.raises(KeyError):
        through_pipes(
            sample(9 * CHUNK),
            lambda source, target: pack.pack_stream(source, target, packing, progress=stop),
        )


def damaged(stored: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files that are not what they claim."""
    for end in range(0, len(stored), 1 + len(stored) // 40):
        yield f"cut at {end}", stored[:end]
    yield "cut at the last byte", stored[:-1]
    begin = HEADER_BYTES + Header.parse(stored).table_bytes
    for at in range(begin, len(stored), 37):
        yield f"flipped at {at}", stored[:at] + bytes([stored[at] ^ 0x10]) + stored[at + 1 :]


def is_refused(call: Callable[..., object], *arguments: object) -> bool:
    try:
        call(*arguments)
    except IngotError:
        return True
    return False


@pytest.mark.parametrize("checksum", ["crc32", "sha1"])
def test_damage_is_noticed_in_files_and_pipes(tmp_path, checksum):
    data = sample(3 * CHUNK + 5)
    stored = packed_bytes(tmp_path, data, Packing(chunk_size=CHUNK, checksum=checksum))
    for what, bad in damaged(stored):
        assert is_refused(unpacked, tmp_path, bad), what
        assert is_refused(from_pipe, bad, pack.verify), what


def test_offsets_that_are_wrong_are_noticed(tmp_path):
    data = sample(4 * CHUNK)
    stored = packed_bytes(tmp_path, data, Packing(chunk_size=CHUNK, codec="zlib"))
    table = np.frombuffer(stored, "<i8", 4, HEADER_BYTES)
    swapped = table[[0, 2, 1, 3]]
    for entries in (
        swapped,
        table + np.array([0, 1, 0, 0]),
        table - np.array([0, 0, 0, 20]),
        table - 8,
    ):
        bad = stored[:HEADER_BYTES] + entries.astype("<i8").tobytes() + stored[HEADER_BYTES + 32 :]
        with pytest.raises(IngotError):
            unpacked(tmp_path, bad)
        with pytest.raises(CorruptionError, match=r"Bloscpack offsets: entry . is "):
            through_pipes(bad, partial(pack.unpack_stream, options=OPTIONS))
    # Entries that say nothing are left by a writer that did not finish; the chunks tell.
    nothing = stored[:HEADER_BYTES] + b"\xff" * 32 + stored[HEADER_BYTES + 32 :]
    assert unpacked(tmp_path, nothing)[0] == data
    for each in (nothing, stored):
        assert through_pipes(each, partial(pack.unpack_stream, options=OPTIONS))[0] == data
    # What does not fit into the memory window is not compared.
    far = stored[:HEADER_BYTES] + swapped.astype("<i8").tobytes() + stored[HEADER_BYTES + 32 :]
    few = Options(threads=1, limits=Limits(window_bytes=8))
    assert through_pipes(far, partial(pack.unpack_stream, options=few))[0] == data


def test_sizes_in_the_header_are_compared(tmp_path):
    data = sample(2 * CHUNK + 100)
    stored = packed_bytes(tmp_path, data, Packing(chunk_size=CHUNK))
    for at, value in ((8, CHUNK + 1), (12, 101), (12, 99), (16, 2), (16, 4)):
        size = 8 if at == 16 else 4
        bad = stored[:at] + value.to_bytes(size, "little") + stored[at + size :]
        with pytest.raises(IngotError):
            unpacked(tmp_path, bad)
        with pytest.raises(IngotError):
            from_pipe(bad, pack.verify)


def test_bytes_behind_the_end_are_counted(tmp_path):
    data = sample(CHUNK + 1)
    stored = packed_bytes(tmp_path, data, Packing(chunk_size=CHUNK))
    sizes = Sizes(len(stored), len(data), 7)
    assert unpacked(tmp_path, stored + b"garbage") == (data, sizes)
    assert from_pipe(stored + b"garbage", pack.verify) == sizes


def test_a_short_chunk_inside_a_stream_is_an_error(tmp_path):
    packing = Packing(chunk_size=CHUNK)
    short, _ = through_pipes(b"a", lambda read, write: pack.pack_stream(read, write, packing))
    bad = short + short[HEADER_BYTES:]
    with pytest.raises(CorruptionError, match="chunk_size claims 3000 bytes, chunk 0 holds 1"):
        unpacked(tmp_path, bad)
    with pytest.raises(CorruptionError, match="chunk_size claims 3000 bytes, chunk 0 holds 1"):
        from_pipe(bad, pack.verify)


def test_a_limit_of_the_caller_counts(tmp_path):
    stored = packed_bytes(tmp_path, sample(2 * CHUNK), Packing(chunk_size=CHUNK))
    options = Options(limits=Limits(chunk_bytes=CHUNK - 1))
    with pytest.raises(LimitError):
        from_pipe(stored, lambda source: pack.verify(source, options=options))
    with opened(tmp_path / "target", os.O_RDONLY) as file, pytest.raises(LimitError):
        pack.verify(file, options=options)


def test_claims_cost_no_memory(tmp_path, kernel):
    stored = packed_bytes(tmp_path, sample(2 * CHUNK), Packing(chunk_size=CHUNK, offsets=False))
    chunk = HEADER_BYTES
    claims: list[dict[int, bytes]] = [
        {16: (2**40).to_bytes(8, "little")},
        {8: (2**31 - 17).to_bytes(4, "little"), 12: (2**31 - 17).to_bytes(4, "little")},
        {chunk + 4: (2**31 - 17).to_bytes(4, "little"), 8: (2**31 - 17).to_bytes(4, "little")},
        {chunk + 12: (2**31 - 1).to_bytes(4, "little")},
        {5: b"\1", 24: (2**50).to_bytes(8, "little")},
    ]
    for number, claim in enumerate(claims):
        bad = bytearray(stored)
        for at, value in claim.items():
            bad[at : at + len(value)] = value
        (tmp_path / f"{number}.blp").write_bytes(bad)
    code = """
import os, subprocess
from ingot import pack
for path in sys.argv[1:]:
    for how in ("file", "pipe"):
        if how == "file":
            source = os.open(path, os.O_RDONLY)
        else:
            cat = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
            source = cat.stdout.fileno()
        try:
            pack.verify(source)
        except IngotError as error:
            assert not isinstance(error, LimitError) or "limit" in str(error), error
        else:
            raise AssertionError((path, how))
        if how == "pipe":
            cat.stdout.close()
            cat.wait()
"""
    run_limited(code, kernel, *(tmp_path / f"{number}.blp" for number in range(len(claims))))


@pytest.mark.parametrize(
    "wrong",
    [
        {"codec": "rot13"},
        {"level": -1},
        {"filter": "sieve"},
        {"typesize": 0},
        {"typesize": 256},
        {"chunk_size": 0},
        {"chunk_size": 2**31},
        {"checksum": "crc32c"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError):
        Packing(**wrong)


def test_large_chunks_are_fewer_at_a_time():
    options = Options(threads=8)
    assert [pack._workers(options, size << 20) for size in (0, 1, 16, 32, 2000)] == [8, 8, 6, 5, 4]
    assert pack._workers(Options(threads=1), 2**31) == 1


def test_a_file_that_is_shorter_than_its_size_says(tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(b"x" * 2 * CHUNK)
    with (
        opened(tmp_path / "source", os.O_RDWR) as read,
        opened(tmp_path / "target", os.O_RDWR | os.O_CREAT) as write,
    ):
        original = native.pack_file

        def shrink(*arguments: Any) -> bytes | None:
            os.ftruncate(read, CHUNK)
            return original(*arguments)

        monkeypatch.setattr(native, "pack_file", shrink)
        with pytest.raises(CorruptionError, match="shorter"):
            pack.pack(read, write, Packing(chunk_size=CHUNK), options=OPTIONS)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of this kind")
def test_a_pipe_that_is_closed_early_raises():
    drain, target = os.pipe()
    os.close(drain)
    try:
        with pytest.raises(BrokenPipeError):
            from_pipe(
                sample(CHUNK),
                lambda source: pack.pack_stream(source, target, Packing(chunk_size=CHUNK)),
            )
    finally:
        os.close(target)


def test_pipes_have_the_limits_of_files(tmp_path: Path) -> None:
    options = Options(limits=Limits(chunk_bytes=1000))
    plain = sample(2500)

    def unpack(source: int, target: int) -> Sizes:
        return pack.unpack_stream(source, target, options=options)

    for name, packing in (("known", Packing(chunk_size=2500)), ("small", Packing(chunk_size=900))):
        stored = packed_bytes(tmp_path, plain, packing)
        if name == "small":
            assert through_pipes(stored, unpack)[0] == plain
            continue
        # A header that says nothing of the chunks does not hide how long they are.
        unknown = Header.parse(stored[:HEADER_BYTES])
        for header in (unknown, replace(unknown, chunk_size=-1, last_chunk=-1)):
            with pytest.raises(LimitError, match="2500 bytes, the limit is 1000"):
                through_pipes(header.pack() + stored[HEADER_BYTES:], unpack)


def test_a_file_that_grows_while_it_is_packed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(sample(3 * CHUNK))
    facts = source.stat()
    with source.open("ab") as file:
        file.write(b"more")
    with opened(source, os.O_RDONLY) as read, opened(target, os.O_RDWR | os.O_CREAT) as write:
        # The size was asked for before the file grew.
        monkeypatch.setattr(os, "fstat", lambda descriptor: facts)
        with pytest.raises(CorruptionError, match=f"has become longer than {3 * CHUNK} bytes"):
            pack.pack(read, write, Packing(chunk_size=CHUNK), options=OPTIONS)
