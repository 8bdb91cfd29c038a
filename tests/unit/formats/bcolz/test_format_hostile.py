"""bcolz directories that lie, are damaged, or want out: each is a clear error, and never data.

The comments number the list of bad inputs that the format page gives; the last test says which test
proves which of them, and that none is left out.
"""

import json
import os
import pickle
import re
import socket
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import blosc
from ingot.codecs.checksums import crc32c
from ingot.engine.payload import engine_of
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ingot.formats import trailer
from ingot.formats.bcolz.chunk_file import pack_head
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.format import ArrayNode, TableNode
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit, LocalStore, MemoryStore, Put
from ingot.stores.local.journal import Journal, Removed, checksum, pack
from tests.storage import Place, content, delete, put, store_at

ROWS, CHUNK = 10, 4
DATA = np.arange(ROWS, dtype="<i4")


def chunk_file(rows: np.ndarray[Any, Any]) -> bytes:
    """Return a chunk as bcolz writes it: no trailer."""
    return pack_head() + blosc.compress(rows, typesize=rows.itemsize)


def dataset(**documents: Any) -> dict[str, bytes]:
    """Return a directory of ten numbers, with other values for keys of its documents."""
    storage = {
        "dtype": "int32",
        "cparams": {"clevel": 5, "shuffle": 1, "cname": "lz4", "quantize": 0},
        "chunklen": CHUNK,
        "expectedlen": ROWS,
        "dflt": 0,
    }
    sizes = {"shape": [ROWS], "nbytes": 4 * ROWS, "cbytes": 100}
    for name, value in documents.items():
        (sizes if name in sizes else storage)[name] = value
    files = {
        f"data/__{number}.blp": chunk_file(DATA[CHUNK * number : CHUNK * (number + 1)])
        for number in range(3)
    }
    documents = {"meta/storage": storage, "meta/sizes": sizes, "__attrs__": {}}
    return files | {key: (json.dumps(value) + "\n").encode() for key, value in documents.items()}


def read(place: Place, key: Any = ...) -> Any:
    return ingot.open(place)[key]


def refuses(place: Place, files: dict[str, bytes], *kinds: type[IngotError]) -> None:
    """Check that reading all of a dataset is one of some errors, and not a bare one of Python's."""
    put(place, files)
    with pytest.raises(kinds):
        read(place)


def test_the_dataset_itself_is_sound(place: Place) -> None:
    put(place, dataset())
    np.testing.assert_array_equal(read(place), DATA)


SIZES = {
    1: (b"", CorruptionError),
    2: (b"\xff\xfe", FormatError),
    3: (b"[10]", FormatError),
    4: (b'{"shape": [10], "shape": [3], "nbytes": 1, "cbytes": 1}', FormatError),
    "4 NaN": (b'{"shape": [10], "nbytes": NaN, "cbytes": 1}', FormatError),
    "2 cut": (b'{"shape": [1', FormatError),
    "3 text": (b'"text"', FormatError),
    "3 null": (b"null", FormatError),
    "zeros": (bytes(60), CorruptionError),
    "no shape": (b'{"nbytes": 40}', FormatError),
}


@pytest.mark.parametrize("item", SIZES)
def test_sizes_that_are_no_document(place: Place, item: object) -> None:
    data, kind = SIZES[item]  # type: ignore[index]
    refuses(place, dataset() | {"meta/sizes": data}, kind)


SHAPES = {
    5: [-1],
    6: [2.5],
    7: "10",
    8: [],
    9: [True],
    10: [2**63],
    "10 product": [2**40, 2**40],
    "10 bytes": [2**62],
    "nested": [[10]],
    "axes": [1] * 33,
}


@pytest.mark.parametrize("item", SHAPES)
def test_shapes_that_are_none(place: Place, item: object) -> None:
    refuses(place, dataset(shape=SHAPES[item]), FormatError, LimitError)  # type: ignore[index]


@pytest.mark.parametrize("rows", [13, 12, 11, 10**12])  # 11, 12
def test_more_rows_than_are_stored(place: Place, rows: int) -> None:
    put(place, dataset(shape=[rows]))
    with pytest.raises(CorruptionError):
        read(place, slice(8, 13))
    np.testing.assert_array_equal(read(place, slice(0, 8)), DATA[:8])


def test_fewer_rows_than_are_stored_are_all_there_is(place: Place) -> None:
    put(place, dataset(shape=[5]))
    np.testing.assert_array_equal(read(place), DATA[:5])


def test_rows_of_another_shape_do_not_fit_the_chunks(place: Place) -> None:  # 13
    refuses(place, dataset(shape=[10, 3]), CorruptionError)


def test_wrong_counters_do_no_harm(place: Place) -> None:
    put(place, dataset(nbytes=-7, cbytes="many"))
    np.testing.assert_array_equal(read(place), DATA)


def test_storage_that_is_missing(place: Place) -> None:  # 14
    files = dataset()
    del files["meta/storage"]
    refuses(place, files, FormatError)


@pytest.mark.parametrize(
    "chunklen", [0, -1, 10**12, True, 2.0, "4", None], ids=str
)  # 15, 16, 17, 18
def test_chunk_lengths_that_are_none(place: Place, chunklen: object) -> None:
    refuses(place, dataset(chunklen=chunklen), FormatError, LimitError)


@pytest.mark.parametrize("chunklen", [3, 5, 10])  # 19
def test_a_chunk_length_that_the_chunks_have_not(place: Place, chunklen: int) -> None:
    refuses(place, dataset(chunklen=chunklen), CorruptionError)


DTYPES = {
    20: "int33",
    "20 word": "potato",
    "20 empty": "",
    21: "|S0",
    "21 huge": "|S9999999999",
    "23 list": "[" * 100_000,
    "23 call": "__import__('os').system('true')",
    "23 fields": "[('a', '<i4'), ('a', '<i4')]",
    "23 offsets": "{'names': ['a'], 'formats': ['<i4'], 'offsets': [-1], 'itemsize': 4}",
    "23 overlap": "{'names': ['a','b'], 'formats': ['<i4','<i4'], 'offsets': [0,2], 'itemsize': 8}",
    "23 unknown": "{'names': ['a'], 'formats': ['<i8'], 'offsets': [0], 'itemsize': 8, 'x': 1}",
    "23 titles": "{'names':['a'],'formats':['<i8'],'offsets':[0],'itemsize':8,'titles':['t']}",
    "23 object field": "[('a', '|O')]",
    "number": 4,
    "none": None,
    "23 nested shape": "[('a', ('<i4', (99999, 99999)))]",
}


@pytest.mark.parametrize("item", DTYPES, ids=str)
def test_types_that_are_none(place: Place, item: object) -> None:
    wrong = DTYPES[item]  # type: ignore[index]
    refuses(place, dataset(dtype=wrong), FormatError, LimitError, UnsupportedError)


@pytest.mark.parametrize("dtype", ["complex128", "int64", "|S3", "int16"])  # 22
def test_a_type_of_another_width_than_is_stored(place: Place, dtype: str) -> None:
    refuses(place, dataset(dtype=dtype), CorruptionError)


class Bomb:
    """Unpickling it leaves a mark."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_objects_run_no_code(place: Place, tmp_path: Path) -> None:  # 24
    mark = tmp_path / "mark"
    data = pickle.dumps(Bomb(str(mark)))
    put(place, dataset(dtype="object", shape=[1]) | {"data/__0.blp": chunk_file(_octets(data))})
    with pytest.raises(UnsafeError):
        read(place)
    assert not mark.exists()


def test_objects_that_are_allowed_and_broken(place: Place) -> None:
    put(place, dataset(dtype="object", shape=[1]) | {"data/__0.blp": chunk_file(_octets(b"\x80"))})
    with pytest.raises(CorruptionError):
        ingot.open(place, options=Options(allow_pickle=True))[...]


def _octets(data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("cparams", "kind"),
    [
        ({"clevel": 5, "shuffle": 1, "cname": "lzma"}, UnsupportedError),  # 25
        ({"clevel": 5, "shuffle": 3}, FormatError),
        ({"clevel": 10, "shuffle": 1}, FormatError),
        ({"clevel": 5, "shuffle": 1, "cname": 4}, FormatError),
        ({"clevel": 5, "shuffle": 1, "quantize": -1}, FormatError),
        (None, FormatError),
        ([], FormatError),
    ],
    ids=str,
)
def test_parameters_that_are_none(place: Place, cparams: object, kind: type[IngotError]) -> None:
    refuses(place, dataset(cparams=cparams), kind)


@pytest.mark.parametrize("dflt", ["text", [1, 2], {"a": 1}, 2**40, 1.5, [[[1]], 2]], ids=str)  # 26
def test_defaults_that_are_no_value_of_the_type(place: Place, dflt: object) -> None:
    refuses(place, dataset(dflt=dflt), FormatError)


def test_a_chunk_that_is_missing(place: Place) -> None:  # 27
    put(place, dataset())
    delete(place, "data/__1.blp")
    with pytest.raises(CorruptionError):
        read(place)
    with pytest.raises(CorruptionError):
        ingot.open(place, "r+")[5] = 1
    np.testing.assert_array_equal(read(place, slice(0, 4)), DATA[:4])
    np.testing.assert_array_equal(read(place, [9, 0]), [9, 0])
    with pytest.raises(CorruptionError):
        read(place, [9, 4])


def test_chunks_that_are_cut(place: Place) -> None:  # 28, 29, 30
    for source in (dataset(), ours()):
        put(place, source)
        whole = source["data/__0.blp"]
        # A trailer that is gone altogether leaves a chunk as bcolz writes it.
        legacy = 16 + int.from_bytes(whole[28:32], "little")
        for length in range(len(whole)):
            put(place, {"data/__0.blp": whole[:length]})
            if length == legacy:
                np.testing.assert_array_equal(read(place), DATA)
                continue
            with pytest.raises((CorruptionError, FormatError)):
                read(place)


def ours(**settings: Any) -> dict[str, bytes]:
    """Return the same ten numbers as Ingot stores them."""
    store = MemoryStore()
    ingot.array(DATA, store, format="bcolz", chunks=CHUNK, **settings)
    return content(store)


@pytest.mark.parametrize("settings", [{}, {"codec": "none"}], ids=["packed", "plain"])
def test_no_flipped_bit_passes(place: Place, settings: dict[str, Any]) -> None:
    files = ours(**settings)
    put(place, files)
    whole = bytearray(files["data/__0.blp"])
    for bit in range(8 * len(whole)):
        if bit // 8 in (5, 6, 7):
            continue  # Reserved: nothing depends on it, and no checksum covers it.
        whole[bit // 8] ^= 1 << bit % 8
        put(place, {"data/__0.blp": bytes(whole)})
        with pytest.raises(IngotError):
            read(place)
        whole[bit // 8] ^= 1 << bit % 8
    put(place, {"data/__0.blp": bytes(whole)})
    np.testing.assert_array_equal(read(place), DATA)


@pytest.mark.parametrize(
    ("at", "value", "kind"),
    [(0, b"blpX", FormatError), (4, b"\x63", UnsupportedError), (8, b"\x02", UnsupportedError)],
)  # 31, 32, 33
def test_heads_that_are_none(place: Place, at: int, value: bytes, kind: type[IngotError]) -> None:
    files = dataset()
    chunk = files["data/__0.blp"]
    files["data/__0.blp"] = chunk[:at] + value + chunk[at + len(value) :]
    refuses(place, files, kind)


def test_swapped_chunks(place: Place) -> None:  # 34
    files = ours()
    files["data/__0.blp"], files["data/__1.blp"] = files["data/__1.blp"], files["data/__0.blp"]
    refuses(place, files, CorruptionError)


@pytest.mark.parametrize("version", [0, 3, 255])
def test_a_trailer_of_another_version(place: Place, version: int) -> None:
    files = ours()
    chunk = bytearray(files["data/__0.blp"])
    chunk[16 + int.from_bytes(chunk[28:32], "little") + 4] = version
    chunk[-4:] = _crc32c(chunk[16 + int.from_bytes(chunk[28:32], "little") : -4])
    refuses(place, files | {"data/__0.blp": bytes(chunk)}, UnsupportedError)


def uses(array: ingot.Array) -> list[Callable[[], Any]]:
    """Return all ways to use the last chunk of an array."""
    return [
        lambda: array[...],
        lambda: array[-1],
        lambda: array[[3, 9]],
        lambda: array[::3],
        lambda: array.append([1]),
        lambda: array.__setitem__(9, 5),
        lambda: array.__setitem__([1, 9], 5),
    ]


@pytest.mark.parametrize("use", range(7))
def test_a_chunk_of_another_array(place: Place, use: int) -> None:  # 44
    """It has the same type, length and number, and its checksums are right."""
    files, others = ours(), ours()
    name = "data/__2.blp"
    put(place, files | {name: others[name]})
    claim, fact = (json.loads(each["meta/storage"])["x_id"] for each in (others, files))
    message = f"chunk trailer: its identity is {claim}, the x_id of the array is {fact}"
    array = ingot.open(place, "r+")
    with pytest.raises(CorruptionError, match=message) as caught:
        uses(array)[use]()
    assert any(name in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(array[:8], DATA[:8])
    assert content(place)[name] == others[name]


def test_a_chunk_of_another_column(place: Place) -> None:  # 44
    columns = {"a": DATA, "b": DATA + 100}
    table = ingot.table(columns, place, format="bcolz", chunks=CHUNK)
    name = "data/__1.blp"
    put(place, {f"a/{name}": content(place)[f"b/{name}"]})
    table = ingot.open(place)
    calls: list[Callable[[], Any]] = [
        lambda: table["a"][...],
        lambda: table[4],
        lambda: table.where("a > 2").read(),
        lambda: table.where("a == 105").count(),
    ]
    for call in calls:
        with pytest.raises(CorruptionError, match="chunk trailer: its identity is"):
            call()
    np.testing.assert_array_equal(table["b"][...], DATA + 100)


@pytest.mark.parametrize("use", range(7))
def test_an_identity_that_is_gone(place: Place, use: int) -> None:  # 45
    files = ours()
    storage = json.loads(files["meta/storage"])
    claim = storage.pop("x_id")
    put(place, files | {"meta/storage": json.dumps(storage).encode()})
    array = ingot.open(place, "r+")
    with pytest.raises(CorruptionError, match=f"identity is {claim}, the array has no x_id"):
        uses(array)[use]()
    assert content(place)["data/__2.blp"] == files["data/__2.blp"]


WRONG: tuple[Any, ...] = ("", "1234", "0" * 15, "0" * 17, "0x12345678abcdef", "G" * 16, "A" * 16)


@pytest.mark.parametrize("wrong", [*WRONG, "0" * 15 + "\u0663", 7, 0, True, [], {}, ["0" * 16]])
def test_identities_that_are_none(place: Place, wrong: Any) -> None:  # 46
    put(place, ours())
    storage = json.loads(content(place)["meta/storage"]) | {"x_id": wrong}
    put(place, {"meta/storage": json.dumps(storage).encode()})
    with pytest.raises(FormatError, match=r"meta/storage: x_id is .*, not 16 hexadecimal digits"):
        ingot.open(place)


def version_1(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return a dataset with trailers of version 1, which have no identity."""
    old = dict(files)
    for key, data in files.items():
        if key.endswith(".blp"):
            end = 16 + int.from_bytes(data[28:32], "little")
            found = trailer.parse(data[end:])
            packed = trailer.pack(data[16:end], found.number, found.rows, found.zone)
            assert packed[4] == 1
            old[key] = data[:end] + packed
    return old


@pytest.mark.parametrize("identified", [True, False])
def test_trailers_without_an_identity_are_read(place: Place, identified: bool) -> None:
    files = version_1(ours())
    if not identified:
        storage = json.loads(files["meta/storage"])
        del storage["x_id"]
        files["meta/storage"] = json.dumps(storage).encode()
    put(place, files)
    array = ingot.open(place, "r+")
    np.testing.assert_array_equal(array[...], DATA)
    array.append([1, 2, 3])
    array[0] = 7
    np.testing.assert_array_equal(ingot.open(place)[...], [7, *range(1, 10), 1, 2, 3])
    versions = []
    for number in range(4):
        data = content(place)[f"data/__{number}.blp"]
        versions.append(data[16 + int.from_bytes(data[28:32], "little") + 4])
    assert versions == ([2, 1, 2, 2] if identified else [1, 1, 1, 1])


def _crc32c(data: bytearray) -> bytes:
    return crc32c(bytes(data)).to_bytes(4, "little")


def test_other_names_are_no_chunks(place: Place) -> None:  # 35
    wrong = chunk_file(DATA[:4] + 100)
    strange = ("__01.blp", "__-1.blp", "__1.blp.bak", "._0.blp", "__0.BLP", "__7.blp")
    put(place, dataset() | {f"data/{name}": wrong for name in strange})
    np.testing.assert_array_equal(read(place), DATA)


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "socket"])  # 36
def test_special_files_in_the_place_of_a_chunk(tmp_path: Path, kind: str, kernel: str) -> None:
    root = tmp_path / "d"
    put(root, dataset())
    path = root / "data/__1.blp"
    path.unlink()
    secret = tmp_path / "secret"
    secret.write_bytes(chunk_file(DATA[4:8]))
    bound = socket.socket(socket.AF_UNIX)
    make: dict[str, Callable[[], object]] = {
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(secret),
        "pipe": lambda: os.mkfifo(path),
        "socket": lambda: _bound(bound, path),
    }
    make[kind]()
    with pytest.raises(UnsafeError):
        read(root)
    bound.close()


def _bound(bound: socket.socket, path: Path) -> None:
    # The address of a socket is short: bind it by a relative name.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        bound.bind(path.name)
    finally:
        os.chdir(before)


def table(names: object, *columns: str, **documents: Any) -> dict[str, bytes]:
    files = {
        f"{column}/{key}": data for column in columns for key, data in dataset(**documents).items()
    }
    return files | {"__rootdirs__": json.dumps({"names": names}).encode(), "__attrs__": b"{}"}


def open_table(place: Place) -> TableNode:
    node = BcolzFormat().open(store_at(place))
    assert isinstance(node, TableNode)
    return node


def test_the_table_itself_is_sound(place: Place) -> None:
    put(place, table(["a", "b"], "a", "b"))
    assert list(open_table(place).columns) == ["a", "b"]


def test_tables_without_columns_open(place: Place) -> None:
    put(place, table([]))
    assert open_table(place).columns == {}


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (None, FormatError),  # 37
        ("ab", FormatError),
        ([1], FormatError),
        (["a", "a"], FormatError),  # 38
        (["a", "missing"], CorruptionError),
        (["../a"], UnsafeError),  # 39
        (["/etc"], UnsafeError),
        (["a/data"], UnsafeError),
        (["a\\b"], UnsafeError),
        (["a\0"], UnsafeError),
        ([".."], UnsafeError),
        ([""], UnsafeError),
        (["C:x"], UnsafeError),
        (["a" * 300], UnsafeError),
    ],
    ids=str,
)
def test_names_that_are_none(place: Place, names: object, kind: type[IngotError]) -> None:
    put(place, table(names, "a"))
    with pytest.raises(kind):
        open_table(place)


def test_old_places_of_columns_stay_inside(place: Place, tmp_path: Path) -> None:
    files = table(["a"], "elsewhere")
    for wrong in ("../..", "/", "..", "x/.."):
        rootdirs = {"names": ["a"], "dirs": {"a": wrong}}
        put(place, files | {"__rootdirs__": json.dumps(rootdirs).encode()})
        with pytest.raises((UnsafeError, CorruptionError)):
            open_table(place)


def test_columns_of_different_length(place: Place) -> None:  # 40
    longer = {f"b/{key}": data for key, data in dataset(shape=[5]).items()}
    put(place, table(["a", "b"], "a") | longer)
    with pytest.raises(CorruptionError, match="different length"):
        open_table(place)


def test_attributes_without_end(place: Place) -> None:  # 41, 42
    for hostile in (b'{"a":' + b"[" * 100_000, b'{"a": ' + b"9" * 10**6 + b"}"):
        refuses(place, dataset() | {"__attrs__": hostile}, LimitError)


def test_tables_in_each_other_without_end(place: Place) -> None:
    files = {"__rootdirs__": b'{"names": ["a"]}'}
    for depth in range(1, 40):
        files["a/" * depth + "__rootdirs__"] = b'{"names": ["a"]}'
    put(place, files)
    with pytest.raises(IngotError):
        open_table(place)


def journal(key: str = "a/data/__0.blp", version: int = 1) -> bytes:
    """Return a journal that is whole, whatever it says."""
    made = bytearray(pack(Journal("00112233aabbccdd", (Removed(key),))))
    made[8:10] = version.to_bytes(2, "little")
    return bytes(made[:-4]) + checksum(made[:-4]).to_bytes(4, "little")


JOURNALS = {
    "empty": (b"", CorruptionError),
    "zeros": (bytes(100), CorruptionError),
    "text": (b"{}" * 50, UnsupportedError),
    "cut": (journal()[:-1], CorruptionError),
    "a bit": (journal()[:60] + bytes([journal()[60] ^ 1]) + journal()[61:], CorruptionError),
    "version": (journal(version=99), UnsupportedError),
    "out of the table": (journal("../victim"), UnsafeError),
    "absolute": (journal("/etc/passwd"), UnsafeError),
    "the lock": (journal(".lock"), UnsafeError),
}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("item", JOURNALS)  # 43
def test_journals_that_are_none(tmp_path: Path, item: str, settled: bool) -> None:
    data, kind = JOURNALS[item]
    root, victim = tmp_path / "table", tmp_path / "victim"
    victim.write_bytes(b"mine")
    put(root, table(["a", "b"], "a", "b"))
    if settled:
        LocalStore(root, writable=True).apply(Commit(publish=(Put("x", b""),)))
    else:
        (root / ".lock").unlink(missing_ok=True)
    (root / ".commit").write_bytes(data)
    for mode in ("r", "r+"):
        for place in (root, root / "a"):
            with pytest.raises(kind):
                ingot.open(place, mode)  # type: ignore[arg-type]
    with pytest.raises(kind):
        LocalStore(root, writable=True).apply(Commit(publish=(Put("x", b""),)))
    assert (root / ".commit").read_bytes() == data
    assert victim.read_bytes() == b"mine"


def test_a_bomb_is_not_decoded(place: Place) -> None:
    # A chunk that claims two gigabytes, and a file of zeros that would be as long.
    bomb = bytearray(chunk_file(DATA[:4]))
    bomb[20:24] = (2**31 - 1).to_bytes(4, "little")
    refuses(place, dataset() | {"data/__0.blp": bytes(bomb)}, CorruptionError, FormatError)
    stream = zlib.compress(bytes(10**7), 9)
    refuses(place, dataset() | {"data/__0.blp": stream}, FormatError, CorruptionError)


def test_a_table_is_no_array(place: Place) -> None:
    put(place, table(["a"], "a"))
    node = BcolzFormat().open(store_at(place), "a")
    assert isinstance(node, ArrayNode)
    engine = engine_of(node.chunks, Options())
    np.testing.assert_array_equal(engine.read(parse(..., (ROWS,))), DATA)


PROOFS: dict[Callable[..., None], Sequence[int]] = {
    test_sizes_that_are_no_document: (1, 2, 3, 4),
    test_shapes_that_are_none: (5, 6, 7, 8, 9, 10),
    test_more_rows_than_are_stored: (11, 12),
    test_rows_of_another_shape_do_not_fit_the_chunks: (13,),
    test_storage_that_is_missing: (14,),
    test_chunk_lengths_that_are_none: (15, 16, 17, 18),
    test_a_chunk_length_that_the_chunks_have_not: (19,),
    test_types_that_are_none: (20, 21, 23),
    test_a_type_of_another_width_than_is_stored: (22,),
    test_objects_run_no_code: (24,),
    test_parameters_that_are_none: (25,),
    test_defaults_that_are_no_value_of_the_type: (26,),
    test_a_chunk_that_is_missing: (27,),
    test_chunks_that_are_cut: (28, 29, 30),
    test_heads_that_are_none: (31, 32, 33),
    test_swapped_chunks: (34,),
    test_other_names_are_no_chunks: (35,),
    test_special_files_in_the_place_of_a_chunk: (36,),
    test_names_that_are_none: (37, 38, 39),
    test_columns_of_different_length: (40,),
    test_attributes_without_end: (41, 42),
    test_journals_that_are_none: (43,),
    test_a_chunk_of_another_array: (44,),
    test_an_identity_that_is_gone: (45,),
    test_identities_that_are_none: (46,),
}


def test_every_bad_input_of_the_page_is_proved() -> None:
    page = Path(__file__).parents[4] / "docs/formats/bcolz.md"
    refused = page.read_text("utf-8").partition("## What is refused")[2]
    listed = re.findall(r"^\| (\d+)(?: to (\d+))? \|", refused, re.MULTILINE)
    numbers = [n for low, high in listed for n in range(int(low), int(high or low) + 1)]
    assert numbers == sorted(n for proved in PROOFS.values() for n in proved)
    assert numbers == list(range(1, 47))
