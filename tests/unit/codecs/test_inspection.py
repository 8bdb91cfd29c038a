"""A chunk laid open: every field, block and stream, for people and for programs."""

import json
import struct

import pytest

from ingot.codecs.inspection import inspect
from ingot.errors import CorruptionError, UnsupportedError

# Two blocks of 256 bytes, shuffled pairs, split into two streams each, and a short third one.
# Stored out of order: block 1, block 2, block 0.
STREAMS = {
    1: [bytes(128), b"\x1f" + bytes(9)],
    2: [bytes(20)],
    0: [b"\x1f" + bytes(6), bytes(128)],
}
BODY = {
    index: b"".join(struct.pack("<i", len(stream)) + stream for stream in streams)
    for index, streams in STREAMS.items()
}
STARTS = {1: 28, 2: 28 + len(BODY[1]), 0: 28 + len(BODY[1]) + len(BODY[2])}
CBYTES = 28 + sum(map(len, BODY.values()))
CHUNK = (
    struct.pack("<BBBBiii", 2, 1, 0x21, 2, 532, 256, CBYTES)
    + struct.pack("<iii", STARTS[0], STARTS[1], STARTS[2])
    + BODY[1]
    + BODY[2]
    + BODY[0]
)


def test_every_block_and_stream_is_there() -> None:
    inspection = inspect(CHUNK)
    assert inspection.header.codec == "lz4"
    assert [block.index for block in inspection.blocks] == [0, 1, 2]
    assert [block.offset for block in inspection.blocks] == [STARTS[0], STARTS[1], STARTS[2]]
    assert [block.nbytes for block in inspection.blocks] == [256, 256, 20]
    assert [block.cbytes for block in inspection.blocks] == [
        len(BODY[0]),
        len(BODY[1]),
        len(BODY[2]),
    ]
    kinds = [[stream.kind for stream in block.streams] for block in inspection.blocks]
    assert kinds == [["codec", "raw"], ["raw", "codec"], ["raw"]]
    first = inspection.blocks[0].streams[0]
    assert (first.offset, first.nbytes, first.cbytes) == (STARTS[0] + 4, 128, 7)
    assert CHUNK[first.offset : first.offset + first.cbytes] == STREAMS[0][0]


def test_the_map_can_be_read() -> None:
    lines = str(inspect(CHUNK)).splitlines()
    assert lines[0] == f"Blosc chunk: 532 bytes in {CBYTES} (ratio {532 / CBYTES:.2f})"
    assert lines[1] == "  version 2, versionlz 1, flags 0x21, typesize 2, blocksize 256"
    assert lines[2] == "  codec lz4, filter shuffle, blocks split by byte"
    assert lines[3] == f"  block 0 at {STARTS[0]}: 256 bytes in {len(BODY[0])}"
    assert lines[4] == f"    stream at {STARTS[0] + 4}: 128 bytes in 7, codec (ratio 18.29)"
    assert lines[5] == f"    stream at {STARTS[0] + 15}: 128 bytes in 128, raw (ratio 1.00)"
    assert len(lines) == 3 + 3 + 5


def test_the_dictionary_is_plain_json() -> None:
    described = inspect(CHUNK).to_dict()
    assert json.loads(json.dumps(described)) == described
    assert described["header"] == {
        "version": 2,
        "versionlz": 1,
        "flags": 0x21,
        "typesize": 2,
        "nbytes": 532,
        "blocksize": 256,
        "cbytes": CBYTES,
        "extension": None,
        "codec": "lz4",
        "filter": "shuffle",
        "memcpyed": False,
        "split": True,
        "block_count": 3,
        "ratio": 532 / CBYTES,
    }
    assert described["blocks"][2] == {
        "index": 2,
        "offset": STARTS[2],
        "nbytes": 20,
        "cbytes": 24,
        "streams": [
            {"offset": STARTS[2] + 4, "nbytes": 20, "cbytes": 20, "kind": "raw", "ratio": 1.0}
        ],
    }


def test_an_empty_chunk_has_no_blocks() -> None:
    inspection = inspect(bytes.fromhex("02011201 00000000 01000000 10000000"))
    assert inspection.blocks == ()
    assert inspection.ratio == 0


def test_any_buffer_will_do() -> None:
    assert inspect(memoryview(CHUNK)) == inspect(bytearray(CHUNK)) == inspect(CHUNK)


def test_what_does_not_fit_together_raises() -> None:
    with pytest.raises(CorruptionError, match="cbytes claims"):
        inspect(CHUNK[:-1])
    with pytest.raises(CorruptionError, match="block 0 starts at 7"):
        inspect(CHUNK[:16] + struct.pack("<i", 7) + CHUNK[20:])
    with pytest.raises(UnsupportedError, match="version 5 is Blosc 2"):
        inspect(b"\x05" + CHUNK[1:])
