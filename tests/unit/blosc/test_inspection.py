"""A chunk laid open: every field, block and stream, for people and for programs."""

import json
import struct

import pytest

from ingot.blosc.inspection import inspect
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
        "filters": [["shuffle", 0]],
        "special": "none",
        "memcpyed": False,
        "variable": False,
        "split": True,
        "block_count": 3,
        "ratio": 532 / CBYTES,
    }
    assert described["dictionary"] is None
    assert described["blocks"][2] == {
        "index": 2,
        "offset": STARTS[2],
        "nbytes": 20,
        "cbytes": 24,
        "streams": [
            {
                "offset": STARTS[2] + 4,
                "nbytes": 20,
                "cbytes": 20,
                "kind": "raw",
                "value": None,
                "ratio": 1.0,
            }
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
    with pytest.raises(UnsupportedError, match="version 7 is unknown"):
        inspect(b"\x07" + CHUNK[1:])


# Delta, then shuffle by four; a dictionary of three bytes; a run, zeros, and a raw short block.
EXTENDED = (
    struct.pack("<BBBBiii", 5, 1, 0x2D, 2, 14, 8, 32 + 8 + 7 + 5 + 4 + 10)
    + bytes([3, 1, 0, 0, 0, 0, 1, 0, 0, 4, 0, 0, 0, 0, 0, 0x03])
    + struct.pack("<ii", 47, 56)
    + struct.pack("<i", 3)
    + b"abc"
    + struct.pack("<ib", -65, 1)
    + struct.pack("<i", 0)
    + struct.pack("<i", 6)
    + b"spams."
)


def test_a_map_of_blosc_2_names_filters_runs_and_the_dictionary() -> None:
    assert str(inspect(EXTENDED)).splitlines() == [
        "Blosc chunk: 14 bytes in 66 (ratio 0.21)",
        "  version 5, versionlz 1, flags 0x2d, typesize 2, blocksize 8",
        "  blosc2_flags 0x03 (big-endian writer)",
        "  codec lz4, filters delta, then shuffle 4, blocks split by byte",
        "  dictionary at 44: 3 bytes",
        "  block 0 at 47: 8 bytes in 9",
        "    stream at 51: 4 bytes in 1, run of 65 (ratio 4.00)",
        "    stream at 56: 4 bytes in 0, run of 0 (ratio 4.00)",
        "  block 1 at 56: 6 bytes in 10",
        "    stream at 60: 6 bytes in 6, raw (ratio 1.00)",
    ]


def test_json_of_blosc_2_names_filters_runs_and_the_dictionary() -> None:
    described = inspect(EXTENDED).to_dict()
    assert json.loads(json.dumps(described))["header"]["filters"] == [["delta", 0], ["shuffle", 4]]
    assert described["dictionary"] == {"offset": 44, "nbytes": 3}
    values = [[stream["value"] for stream in block["streams"]] for block in described["blocks"]]
    assert values == [[65, 0], [None]]


def test_a_special_chunk_says_what_it_holds() -> None:
    zeros = struct.pack("<BBBBiii", 5, 1, 0x05, 4, 4000, 4000, 32) + bytes(15) + b"\x10"
    assert inspect(zeros).blocks == ()
    assert str(inspect(zeros)).splitlines()[-1] == (
        "  codec blosclz, filters none, special value: zeros"
    )
    assert inspect(zeros).ratio == 125
