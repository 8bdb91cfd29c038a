"""Flat arrays, read and written by the engine of their payload."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.codecs.checksums import DIGEST_BYTES
from ingot.codecs.codec import CodecChain
from ingot.engine import changes
from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError
from ingot.formats.format import Coords
from ingot.formats.registry import register, unregister
from ingot.options import Options
from ingot.schema import ArraySchema, Flat
from ingot.selection import parse
from ingot.stores import Commit, MemoryStore
from tests.contracts.toy.flat import ENTRY, HEAD, FlatToyMap
from tests.kernels import on_each_kernel
from tests.storage import use_kernel


@pytest.fixture
def toyflat() -> Iterator[None]:
    """Register the format of flat arrays for one test."""
    register(ENTRY)
    yield
    unregister("toyflat")


def schema_of(shape: tuple[int, ...], order: str = "C", chunk_bytes: int = 8) -> ArraySchema:
    dtype, chain = np.dtype("<i4"), CodecChain()
    return ArraySchema(shape, dtype, (), chain, np.int32(7), order=order, flat=Flat(chunk_bytes))


class StreamedMap(FlatToyMap):
    """A map that takes chunks while they are encoded."""

    taken: list[tuple[int, int]]

    def stage(self, encoded: Any) -> Commit:
        raise AssertionError("a map that takes a stream gets no mapping")

    def stage_each(self, encoded: Iterable[tuple[Coords, bytes | None]]) -> Commit:
        self.taken.extend((number, len(data or b"")) for (number,), data in encoded)
        return Commit()


def test_a_map_may_take_chunks_while_they_are_encoded() -> None:
    schema = schema_of((100,), chunk_bytes=30)
    StreamedMap.taken = []
    chunks = StreamedMap(MemoryStore(), schema, "a", ())
    engine_of(chunks, Options()).assign(parse(..., (100,)), np.arange(100))
    # Without codecs a chunk is as long as its bytes.
    assert StreamedMap.taken == [(number, 30) for number in range(13)] + [(13, 10)]
    StreamedMap.taken = []
    assert changes.filled(engine_of(chunks, Options())) == Commit()
    assert len(StreamedMap.taken) == 14


DATA = np.arange(3000, dtype="<i4") // 7


@on_each_kernel
@pytest.mark.usefixtures("toyflat")
@pytest.mark.parametrize("checksum", DIGEST_BYTES)
@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_a_checksum_is_compared_before_bytes_are_used(
    kernel_name: str,
    checksum: str,
    verify: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kernel(kernel_name, monkeypatch)
    path = tmp_path / "a"
    # Chunks of 1000 items: of the second one a byte is damaged.
    ingot.array(DATA, path, format="toyflat", chunk_bytes=4000, checksum=checksum).close()
    sizes = ingot.open(path)._handle.value.chunks.sizes
    content = bytearray(path.read_bytes())
    # The last byte of the checksum, where there is one.
    content[HEAD + sizes[0] + sizes[1] - 1] ^= 1
    if checksum == "none":
        content[HEAD + sizes[0] + sizes[1] - 1] ^= 1
    path.write_bytes(content)
    array = ingot.open(path, options=Options(verify=verify))
    assert np.array_equal(array[:1000], DATA[:1000])
    assert np.array_equal(array[2000:], DATA[2000:])
    # The Python kernel compares always.
    sound = checksum == "none" or (verify == "never" and kernel_name == "native")
    for key in (slice(None), slice(1100, 1110), slice(0, 3000, 900), [5, 1500]):
        if sound:
            assert np.array_equal(array[key], DATA[key])
        else:
            with pytest.raises(CorruptionError, match=f"{checksum}: the checksum is") as caught:
                array[key]
            assert "in chunk (1,)" in str(caught.value.__notes__)


@on_each_kernel
@pytest.mark.usefixtures("toyflat")
@pytest.mark.parametrize("change", ["claim more", "swap", "cut", "gone"])
def test_chunks_that_are_not_what_they_should_be(
    kernel_name: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    path = tmp_path / "a"
    made = ingot.array(DATA[:2500], path, format="toyflat", chunk_bytes=4000, checksum="none")
    sizes = made._handle.value.chunks._sizes()
    content = path.read_bytes()
    chunks = [content[HEAD + sum(sizes[:n]) :][: sizes[n]] for n in range(3)]
    if change == "claim more":
        # nbytes of the last chunk, which is shorter than the others.
        chunks[2] = chunks[2][:4] + (4000).to_bytes(4, "little") + chunks[2][8:]
    elif change == "swap":
        # The short chunk stands where a long one is due.
        chunks[0], chunks[2] = (chunks[2] + bytes(sizes[0]))[: sizes[0]], chunks[0][: sizes[2]]
    elif change == "cut":
        chunks[2] = chunks[2][:-1]
    else:
        chunks[2] = b""
    path.write_bytes(content[:HEAD] + b"".join(chunks))
    array = ingot.open(path)
    for key in (slice(None), slice(2400, 2410), [0, 2499]):
        with pytest.raises(CorruptionError):
            array[key]
