"""Opening and creating: where, in which format, with which settings, and over what."""

import json
import os
import pathlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import ingot
from ingot.codecs.codec import parse_spelling
from ingot.codecs.compressors import Lzma
from ingot.codecs.foreign import Zstd
from ingot.errors import (
    FormatError,
    LimitError,
    NotFoundError,
    ReadOnlyError,
    UnsafeError,
    UnsupportedError,
)
from ingot.stores import FileStore, LocalStore, MemoryStore
from tests.storage import Place, content, put

NewPlace = Callable[[], Place]


def document(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content(place)[".zarray"])
    return found


# Places -------------------------------------------------------------------------------------------


def test_a_path_may_be_given_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ingot.create("deep/down/a", shape=3, dtype="i4", format="zarr2")
    whole = str(tmp_path / "deep" / "down" / "a")
    forms = ["deep/down/a", pathlib.PurePath("deep/down/a"), whole, LocalStore(whole)]
    for form in forms:
        opened = ingot.open(form)
        assert (opened.shape, opened.path) == ((3,), whole)


def test_a_path_may_be_a_link(tmp_path: Path) -> None:
    ingot.array([1, 2], tmp_path / "a", format="zarr2")
    (tmp_path / "link").symlink_to("a")
    assert ingot.open(tmp_path / "link")[1] == 2


def test_without_a_path_an_array_is_in_memory() -> None:
    array = ingot.create(shape=3, dtype="i4", format="zarr2")
    assert (array.path, array.mode) == (None, "r+")
    assert ingot.create(shape=3, dtype="i4", fill=1, format="zarr2")[0] == 1
    assert array[0] == 0


def test_a_store_keeps_its_own_rights() -> None:
    store = MemoryStore()
    ingot.array([1, 2], store, format="zarr2")
    closed = MemoryStore(content(store), writable=False)
    assert ingot.open(closed, "r+")[1] == 2
    with pytest.raises(ReadOnlyError):
        ingot.open(closed, "r+")[0] = 5
    with pytest.raises(ReadOnlyError):
        ingot.create(MemoryStore(writable=False), shape=3, dtype="i4", format="zarr2")


@pytest.mark.parametrize("path", ["ftp://host/a", "file:///a"])
def test_a_url_is_not_taken_for_a_folder(path: str) -> None:
    with pytest.raises(UnsupportedError, match="not a store that is known"):
        ingot.open(path)
    with pytest.raises(UnsupportedError, match="not a store that is known"):
        ingot.create(path, shape=3, dtype="i4", format="zarr2")


def test_a_place_must_be_one() -> None:
    for path in (5, b"bytes", None):
        with pytest.raises(TypeError, match="a path or a store"):
            ingot.open(path)  # type: ignore[arg-type]


# Opening ------------------------------------------------------------------------------------------


def test_where_nothing_is_nothing_opens(place: Place) -> None:
    for mode in ("r", "r+"):
        with pytest.raises(NotFoundError):
            ingot.open(place, mode)
        with pytest.raises(NotFoundError):
            ingot.open(place, mode, format="zarr2")
    assert not isinstance(place, Path) or not place.exists()


def test_an_empty_folder_has_nothing_in_it(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"zarr2 \(\.zarray, \.zgroup\)"):
        ingot.open(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        ingot.open(tmp_path / "a" / "b")


def test_something_unknown_is_an_error_that_says_what_was_looked_for(place: Place) -> None:
    put(place, {"readme.txt": b"hello", "deep/readme.txt": b"{}"})
    with pytest.raises(
        FormatError, match=r"looked for zarr3 \(zarr\.json\), zarr2 \(\.zarray, \.zgroup\)"
    ):
        ingot.open(place)


def test_a_file_of_no_known_format(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").write_bytes(b"hello")
    with pytest.raises(FormatError, match="looked for"):
        ingot.open(tmp_path / "a.zarr")
    with pytest.raises(NotFoundError):
        ingot.open(tmp_path / "a.zarr" / "b")
    with pytest.raises(NotFoundError):
        ingot.create(tmp_path / "a.zarr" / "b", shape=3, dtype="i4", format="zarr2")
    with pytest.raises(FormatError, match="looked for"):
        ingot.open(FileStore(tmp_path / "a.zarr"))


def test_special_files_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(str(tmp_path / "socket"))
        for name in ("pipe", "socket"):
            with pytest.raises(UnsafeError):
                ingot.open(tmp_path / name)


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    ingot.array([1, 2], tmp_path / "a.bcolz", format="zarr2")
    assert ingot.open(tmp_path / "a.bcolz").format == "zarr2"


def test_a_group_names_its_members(tmp_path: Path) -> None:
    put(tmp_path, {".zgroup": b'{"zarr_format": 2}'})
    ingot.array([1, 2], tmp_path / "temperature")
    group = ingot.open(tmp_path)
    assert isinstance(group, ingot.Group)
    assert list(group) == ["temperature"]


@pytest.mark.parametrize("mode", ["w", "a", "w-", "x", "", "R"])
def test_there_are_two_modes(tmp_path: Path, mode: Any) -> None:
    ingot.array([1, 2], tmp_path, format="zarr2")
    with pytest.raises(ValueError, match="not 'r' or 'r\\+'"):
        ingot.open(tmp_path, mode)


def test_a_format_must_be_known(tmp_path: Path) -> None:
    assert ingot.formats().keys() >= {"bcolz", "zarr0", "zarr1", "zarr2", "zarr3"}
    with pytest.raises(UnsupportedError, match=r"'zarr9' is unknown; there is .*zarr2"):
        ingot.open(tmp_path, format="zarr9")
    with pytest.raises(UnsupportedError, match="'zarr9' is unknown"):
        ingot.create(tmp_path, shape=3, dtype="i4", format="zarr9")


def test_broken_metadata_says_where_it_lies(place: Place) -> None:
    put(place, {".zarray": b'{"zarr_format": 2}'})
    with pytest.raises(FormatError) as caught:
        ingot.open(place)
    assert (str(place) if isinstance(place, Path) else "memory") in caught.value.__notes__[0]


# Creating -----------------------------------------------------------------------------------------


def test_create_writes_what_was_asked_for(place: Place) -> None:
    ingot.create(
        place,
        shape=(20, 30),
        dtype=">f4",
        chunks=(7, 30),
        codec="blosc:zstd:3:bitshuffle",
        fill=np.inf,
        attrs={"when": np.datetime64("2024-02-29")},
        order="F",
        dimension_separator="/",
        format="zarr2",
    )
    assert document(place) == {
        "zarr_format": 2,
        "shape": [20, 30],
        "chunks": [7, 30],
        "dtype": ">f4",
        "compressor": {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0},
        "fill_value": "Infinity",
        "order": "F",
        "filters": None,
        "dimension_separator": "/",
    }
    assert json.loads(content(place)[".zattrs"]) == {"when": "2024-02-29"}


@pytest.mark.parametrize(
    ("chunks", "shape", "expected"),
    [
        ("auto", (100, 100), (100, 100)),
        ("auto", (10_000_000,), (131_072,)),
        ("auto", (0, 100), (1310, 100)),
        ("auto", (), ()),
        (10, (100, 3, 0), (10, 3, 1)),
        (np.int64(200), 100, (200,)),
        ((3, 4), (5, 5), (3, 4)),
        ([3, np.int8(4)], (5, 5), (3, 4)),
    ],
)
def test_chunks(chunks: Any, shape: Any, expected: tuple[int, ...]) -> None:
    assert ingot.create(shape=shape, dtype="f8", chunks=chunks, format="zarr2").chunks == expected


@pytest.mark.parametrize("chunks", ["big", 0, -1, (1, 1), (2.5,), (0,), (True,), (2**63,)])
def test_chunks_that_are_none(place: Place, chunks: Any) -> None:
    with pytest.raises(ValueError):
        ingot.create(place, shape=5, dtype="f8", chunks=chunks, format="zarr2")
    assert content(place) == {}


@pytest.mark.parametrize("format", ["bcolz", "zarr0", "zarr1", "zarr2", "zarr3"])
def test_chunks_at_the_limit_are_made_and_no_larger_ones(new_place: NewPlace, format: str) -> None:
    def options(limit: int) -> ingot.Options:
        return ingot.Options(limits=ingot.Limits(chunk_bytes=limit))

    made = ingot.array(np.arange(26.0), new_place(), chunks=13, format=format, options=options(104))
    assert made[...].tolist() == list(range(26))
    place = new_place()
    with pytest.raises(LimitError, match="104 bytes, the limit is 103"):
        ingot.create(place, shape=26, dtype="f8", chunks=13, format=format, options=options(103))
    with pytest.raises(LimitError, match="104 bytes, the limit is 103"):
        ingot.array(np.arange(26.0), place, chunks=13, format=format, options=options(103))
    assert content(place) == {}


def test_columns_at_the_limit_are_made_and_no_larger_ones(new_place: NewPlace) -> None:
    columns = {"a": np.arange(26), "b": np.arange(26, dtype="i1")}
    limits = [ingot.Options(limits=ingot.Limits(chunk_bytes=limit)) for limit in (104, 103)]
    made = ingot.table(columns, new_place(), chunks=13, options=limits[0])
    assert made["a"][...].tolist() == list(range(26))
    place = new_place()
    with pytest.raises(LimitError, match="104 bytes, the limit is 103"):
        ingot.table(columns, place, chunks=13, options=limits[1])
    assert content(place) == {}


def test_a_chunk_beyond_the_limits_is_refused(place: Place) -> None:
    with pytest.raises(LimitError, match="the limit is 2147483631"):
        ingot.create(place, shape=2**40, dtype="f8", chunks=2**28, format="zarr2")
    limits = ingot.Limits(chunk_bytes=100)
    with pytest.raises(LimitError, match="104 bytes, the limit is 100"):
        ingot.create(
            place,
            shape=50,
            dtype="f8",
            chunks=13,
            options=ingot.Options(limits=limits),
            format="zarr2",
        )
    assert content(place) == {}


@pytest.mark.parametrize(
    ("codec", "filters", "compressor"),
    [
        (None, None, "blosc"),
        ("none", None, None),
        ("zlib:9", None, "zlib"),
        (parse_spelling("bz2:3"), None, "bz2"),
        (parse_spelling("gzip")[0], None, "gzip"),
        (["shuffle:4", "zlib"], ["shuffle"], "zlib"),
        (("zlib", "crc32"), ["zlib", "crc32"], None),
    ],
)
def test_codecs(place: Place, codec: Any, filters: Any, compressor: Any) -> None:
    data = np.arange(100)
    array = ingot.array(data, place, codec=codec, format="zarr2")
    found = document(place)
    assert [each["id"] for each in found["filters"] or []] == (filters or [])
    assert (found["compressor"] or {}).get("id") == compressor
    np.testing.assert_array_equal(ingot.open(place)[...], data)
    again = ingot.create(shape=3, dtype=">i2", codec=array.codec, format="zarr2")
    assert [each.name for each in again.codec] == [each.name for each in array.codec]


@pytest.mark.parametrize(
    ("codec", "error"),
    [
        ("pickle", UnsafeError),
        ("nonsense", UnsupportedError),
        ("zlib:99", FormatError),
        ("blosc:lz4:5:shuffle:0:1", FormatError),
        (["vlen-utf8"], FormatError),
        ([5], TypeError),
    ],
)
def test_codecs_that_are_none(place: Place, codec: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ingot.create(place, shape=3, dtype="i4", codec=codec, format="zarr2")
    assert content(place) == {}


FILLS: list[tuple[Any, Any, Any]] = [
    ("?", 0, np.False_),
    ("?", True, np.True_),
    ("<i2", -5, np.int16(-5)),
    ("<u8", 2**64 - 1, np.uint64(2**64 - 1)),
    ("<f4", 0.1, np.float32(0.1)),
    ("<f8", -np.inf, np.float64(-np.inf)),
    ("<c16", 1 + 2j, np.complex128(1 + 2j)),
    ("<M8[s]", 0, np.datetime64(0, "s")),
    ("<M8[D]", "2024-02-29", np.datetime64("2024-02-29")),
    ("<m8[s]", np.timedelta64(2, "m"), np.timedelta64(120, "s")),
    ("S3", b"ab", np.bytes_(b"ab")),
    ("<U3", "abc", np.str_("abc")),
    ("<U3", 0, np.str_("")),
    ("<i4", None, np.int32(0)),
    (str, "absent", "absent"),
]


@pytest.mark.parametrize(("dtype", "fill", "expected"), FILLS)
def test_fill_values(place: Place, dtype: Any, fill: Any, expected: Any) -> None:
    ingot.create(place, shape=3, dtype=dtype, fill=fill, format="zarr2")
    array = ingot.open(place)
    assert array.fill == expected
    assert array[...].tolist() == [np.array(expected).tolist()] * 3


def test_a_fill_value_of_several_fields(place: Place) -> None:
    fields = np.dtype([("a", "<i4"), ("b", "S2")])
    ingot.create(place, shape=2, dtype=fields, fill=(7, b"x"), format="zarr2")
    assert ingot.open(place)[...].tolist() == [(7, b"x")] * 2


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("u1", 300),
        ("u1", -1),
        ("i4", 1.5),
        ("i4", np.nan),
        ("i4", "x"),
        ("?", 2),
        ("S2", b"abc"),
        ("<U2", "abc"),
        ("<f8", "x"),
        ("<M8[s]", "yesterday"),
        ("<f4", [1, 2]),
    ],
)
def test_fill_values_that_are_none(place: Place, dtype: Any, fill: Any) -> None:
    with pytest.raises(ValueError, match="fill"):
        ingot.create(place, shape=3, dtype=dtype, fill=fill, format="zarr2")
    assert content(place) == {}


@pytest.mark.parametrize("dtype", ["U0", "S0", "(2,)i4", "V0", [("a", "O")], "O"])
def test_types_that_cannot_be_stored(place: Place, dtype: Any) -> None:
    with pytest.raises(ValueError):
        ingot.create(place, shape=3, dtype=dtype, format="zarr2")
    assert content(place) == {}


@pytest.mark.parametrize("shape", [-1, (2, -3), (1.5,), "12", (2**62, 2**62), (2**64,), [1] * 65])
def test_shapes_that_are_none(place: Place, shape: Any) -> None:
    with pytest.raises(ValueError):
        ingot.create(place, shape=shape, dtype="i4", chunks=(1,) * np.size(shape), format="zarr2")
    assert content(place) == {}


@pytest.mark.parametrize(
    ("layout", "error", "text"),
    [
        ({"shards": (4,)}, TypeError, "zarr2 has no setting 'shards'"),
        ({"seperator": "."}, TypeError, "it has order, dimension_separator"),
        ({"order": "K"}, ValueError, "order is 'K', not one of 'C', 'F'"),
        ({"dimension_separator": "-"}, ValueError, "not one of '.', '/'"),
    ],
)
def test_settings_that_the_format_does_not_have(
    place: Place, layout: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ingot.create(place, shape=3, dtype="i4", format="zarr2", **layout)
    with pytest.raises(error, match=text):
        ingot.array([1, 2], place, format="zarr2", **layout)
    assert content(place) == {}


def test_arrays_are_of_version_3_by_default(place: Place) -> None:
    array = ingot.array([1, 2, 3], place, chunks=2, dimension_names=["x"])
    assert array.format == ingot.open(place).format == "zarr3"
    document = json.loads(content(place)["zarr.json"])
    assert document["dimension_names"] == ["x"]
    assert [codec["name"] for codec in document["codecs"]] == ["bytes", "blosc", "crc32c"]
    # The lock file is what writers take turns by.
    assert content(place).keys() - {".lock"} == {"zarr.json", "c/0", "c/1"}


def test_attributes_are_checked_before_anything_is_written(place: Place) -> None:
    with pytest.raises(FormatError, match="'bad'"):
        ingot.create(place, shape=3, dtype="i4", attrs={"bad": {1, 2}}, format="zarr2")
    assert content(place) == {}


# Arrays of data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [[1, 2], 5, [], [[1.5], [2]], np.ma.arange(3), ["a", "bc"], b"x"])
def test_an_array_of_data_holds_the_data(place: Place, data: Any) -> None:
    expected = np.asarray(data)
    for array in (ingot.array(data, place, format="zarr2"), ingot.open(place)):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array[...], expected, strict=True)


def test_an_array_of_data_takes_the_settings_of_create(place: Place) -> None:
    array = ingot.array(
        [1, 2, 300],
        place,
        dtype="f4",
        chunks=2,
        codec="zlib:1",
        fill=1,
        attrs={"a": 1},
        order="F",
        format="zarr2",
    )
    assert (array.dtype, array.chunks, dict(array.attrs)) == (np.dtype("f4"), (2,), {"a": 1})
    assert ingot.array(["a", "bc"], dtype=str, format="zarr2").dtype == np.dtypes.StringDType()
    with pytest.raises(TypeError, match="shape"):
        ingot.array([1, 2], shape=3, format="zarr2")


def test_an_array_may_be_made_of_another(place: Place) -> None:
    first = ingot.array(np.arange(10), place, chunks=3, format="zarr2")
    second = ingot.array(first, place, overwrite=True, chunks=4, format="zarr2")
    assert second[...].tolist() == list(range(10))


class Full(MemoryStore):
    """A store without room for one of its keys."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused = refused

    def apply(self, commit: Any, **wishes: Any) -> None:
        if any(edit.key == self.refused and hasattr(edit, "data") for edit in commit.edits):
            raise OSError(28, "no space left")
        super().apply(commit, **wishes)


@pytest.mark.parametrize("limits", [ingot.Limits(), ingot.Limits(window_bytes=1)])
@pytest.mark.parametrize("refused", ["2", ".zarray"])
def test_an_array_whose_data_does_not_fit_does_not_appear(
    refused: str, limits: ingot.Limits
) -> None:
    store = Full(refused)
    with pytest.raises(OSError, match="no space"):
        ingot.array(
            np.arange(10), store, chunks=3, options=ingot.Options(limits=limits), format="zarr2"
        )
    assert [key for key in content(store) if refused != ".zarray" or key.startswith(".")] == []


# Over what is there -------------------------------------------------------------------------------


CODECS_OF_NUMCODECS = [
    (numcodecs.Zstd(3), "zstd:3"),
    (numcodecs.Zlib(7), "zlib:7"),
    (numcodecs.LZMA(preset=2), "lzma:2"),
    (numcodecs.Blosc("zstd", 7, numcodecs.Blosc.BITSHUFFLE), "blosc:zstd:7:bitshuffle"),
]


@pytest.mark.parametrize(("codec", "spelling"), CODECS_OF_NUMCODECS)
@pytest.mark.parametrize("several", [False, True])
def test_a_codec_of_numcodecs_is_accepted(codec: Any, spelling: str, several: bool) -> None:
    store, numbers = MemoryStore(), np.arange(1000)
    given = [codec] if several else codec
    made = ingot.array(numbers, store, codec=given, format="zarr2", chunks=1000)
    spelled = ingot.array(numbers, codec=spelling, format="zarr2")
    assert made.codec == spelled.codec
    stored = codec.decode(content(store)["0"])
    assert np.array_equal(np.frombuffer(stored, numbers.dtype), numbers)


def test_a_codec_of_zarr_is_accepted() -> None:
    codecs = pytest.importorskip("zarr.codecs")
    numbers = np.arange(1000)
    for codec, spelling in (
        (codecs.ZstdCodec(level=7), "zstd:7"),
        (codecs.GzipCodec(level=3), "gzip:3"),
        (codecs.BloscCodec(cname="lz4", clevel=9, shuffle="noshuffle"), "blosc:lz4:9:noshuffle"),
        (codecs.BloscCodec(cname="zlib", clevel=2, shuffle="shuffle"), "blosc:zlib:2:shuffle"),
    ):
        for given in (codec, [codec]):
            made = ingot.array(numbers, codec=given, format="zarr3")
            assert made.codec == ingot.array(numbers, codec=spelling, format="zarr3").codec
            assert np.array_equal(made[...], numbers)


def test_what_is_no_codec_is_refused() -> None:
    class Nameless:
        def to_dict(self) -> dict[str, Any]:
            return {"level": 3}

    codec: Any
    for codec in (object(), Nameless(), [Nameless()]):
        with pytest.raises(TypeError, match="not a spelling such as 'zstd:3'"):
            ingot.array([1, 2], codec=codec)


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("zstd:99", "zstd: level is 99, not an integer from -131072 to 22"),
        ("zstd:23", "level is 23, not an integer from -131072 to 22"),
        ("lz4:65538", "lz4: acceleration is 65538, not an integer from 0 to 65537"),
        ("lz4:-1", "lz4: acceleration is -1, not an integer from 0 to 65537"),
        ("lzma:10", "lzma: preset is 10, not an integer from 0 to 9 or from"),
        ("zlib:10", "zlib: level is 10, not an integer from -1 to 9"),
        ("bz2:0", "bz2: level is 0, not an integer from 1 to 9"),
        ("blosc:zstd:10", "blosc: clevel is 10, not an integer from 0 to 9"),
        (Zstd(99), "zstd: level is 99, not an integer from -131072 to 22"),
        (numcodecs.Zstd(99), "zstd: level is 99, not an integer from -131072 to 22"),
    ],
)
def test_levels_that_an_encoder_does_not_have(codec: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        ingot.array([1, 2], codec=codec)


def test_the_highest_levels() -> None:
    for codec in ("zstd:22", "zstd:-131072", "lz4:65537", "lzma:9", Lzma(preset=9 | 1 << 31)):
        assert ingot.array([1, 2], codec=codec)[1] == 2


def test_a_file_may_state_a_level_that_its_writer_clamped(tmp_path: Path) -> None:
    ingot.array([1, 2], tmp_path / "a", format="zarr2", codec="zstd:22")
    document = tmp_path / "a" / ".zarray"
    document.write_text(document.read_text().replace('"level": 22', '"level": 99'))
    array = ingot.open(tmp_path / "a", "r+")
    array.append([3])
    assert array[...].tolist() == [1, 2, 3]


def test_an_unknown_codec_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnsupportedError, match=r"'brotli' is unknown; there is .*lz4.*zlib, zstd"):
        ingot.array([1], codec="brotli:5")
    for codec in (5, {"id": "zlib"}, [5]):
        with pytest.raises(TypeError, match="not a spelling such as 'zstd:3', a codec of Ingot"):
            ingot.array([1], codec=codec)


@pytest.mark.parametrize("chunks", [None, True])
def test_chunks_that_mean_auto(chunks: Any) -> None:
    shape = (3000, 700)
    auto = ingot.create(shape=shape, dtype="f8", chunks="auto").chunks
    assert ingot.create(shape=shape, dtype="f8", chunks=chunks).chunks == auto
    assert ingot.group().create_array("a", shape=shape, dtype="f8", chunks=chunks).chunks == auto
    rows = ingot.table({"a": range(10)}, chunks=chunks)["a"].chunks
    assert rows == ingot.table({"a": range(10)})["a"].chunks


@pytest.mark.parametrize("chunks", [False, 1.5])
def test_chunks_of_a_wrong_kind(chunks: Any) -> None:
    with pytest.raises(TypeError, match=f"chunks is {chunks}, not a shape, a number of rows"):
        ingot.create(shape=3, dtype="f8", chunks=chunks)


def test_arguments_by_the_names_of_other_libraries() -> None:
    with pytest.raises(TypeError, match="fill_value: Ingot names this argument 'fill'"):
        ingot.create(shape=3, dtype="f8", fill_value=1)
    with pytest.raises(TypeError, match="compressor: Ingot names this argument 'codec'"):
        ingot.array([1, 2], compressor=None)
    with pytest.raises(TypeError, match="fill_value: Ingot names this argument 'fill'"):
        ingot.group().array("a", [1, 2], fill_value=1)
    with pytest.raises(TypeError, match="compression: Ingot names this argument 'codec'"):
        ingot.table({"a": [1]}, compression="gzip")


def test_an_existing_dataset_hints_at_overwrite(place: Place) -> None:
    ingot.array([1], place)
    for make in (lambda: ingot.array([2], place), lambda: ingot.group(place)):
        with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
            make()
    ingot.array([2], place, overwrite=True)
    assert ingot.open(place)[0] == 2


def test_existing_data_stay_without_overwrite(place: Place) -> None:
    ingot.array([1, 2, 3], place, attrs={"a": 1}, format="zarr2")
    before = content(place)
    with pytest.raises(FileExistsError, match="zarr2 dataset"):
        ingot.create(place, shape=3, dtype="i4", format="zarr2")
    with pytest.raises(FileExistsError, match="zarr2 dataset"):
        ingot.array([4], place, format="zarr2")
    assert content(place) == before


def test_overwriting_leaves_nothing_of_the_old_array(place: Place) -> None:
    ingot.array(
        np.arange(100).reshape(10, 10), place, chunks=(3, 3), attrs={"a": 1}, format="zarr2"
    )
    put(place, {"readme.txt": b"mine", "notes/1.0": b"mine", "20.7": b"a stray chunk"})
    new = ingot.create(
        place,
        shape=(100, 100),
        dtype="u1",
        chunks=(4, 4),
        overwrite=True,
        fill=9,
        codec="none",
        format="zarr2",
    )
    assert (new[...] == 9).all()
    assert dict(ingot.open(place).attrs) == {}
    left = content(place)
    assert (left.pop("readme.txt"), left.pop("notes/1.0")) == (b"mine", b"mine")
    assert left.keys() <= {".zarray", ".zattrs"}


@pytest.mark.parametrize("old", [(), (5,), (2, 3)])
@pytest.mark.parametrize("new", [(), (5,), (2, 3)])
def test_overwriting_with_another_number_of_axes(
    place: Place, old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    ingot.array(np.ones(old), place, chunks=(1,) * len(old), format="zarr2")
    array = ingot.create(
        place, shape=new, dtype="f8", chunks=(1,) * len(new), overwrite=True, format="zarr2"
    )
    assert not array[...].any()
    assert content(place).keys() == {".zarray"}


def test_overwriting_where_nothing_is_is_creating(place: Place) -> None:
    assert ingot.array([1, 2], place, overwrite=True, format="zarr2")[1] == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_array_is_never_replaced(place: Place, overwrite: bool) -> None:
    put(place, {"notes.txt": b"mine"})
    with pytest.raises(FileExistsError, match="something already"):
        ingot.create(place, shape=3, dtype="i4", overwrite=overwrite, format="zarr2")
    put(place, {".zgroup": b'{"zarr_format": 2}'})
    with pytest.raises(FileExistsError):
        ingot.create(place, shape=3, dtype="i4", overwrite=overwrite, format="zarr2")
    assert content(place) == {"notes.txt": b"mine", ".zgroup": b'{"zarr_format": 2}'}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        ingot.create(tmp_path / "a", shape=3, dtype="i4", overwrite=overwrite, format="zarr2")
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_what_cannot_be_read_cannot_be_replaced(place: Place) -> None:
    put(place, {".zarray": b"{}", "0": b"mine"})
    with pytest.raises(FormatError) as caught:
        ingot.create(place, shape=3, dtype="i4", overwrite=True, format="zarr2")
    assert "cannot be replaced" in "".join(caught.value.__notes__)
    assert content(place) == {".zarray": b"{}", "0": b"mine"}


def test_requests_are_checked_before_the_old_array_is_touched(place: Place) -> None:
    ingot.array([1, 2, 3], place, format="zarr2")
    before = content(place)
    for wrong in ({"fill": "x"}, {"codec": "nonsense"}, {"order": "K"}, {"attrs": {"a": object()}}):
        with pytest.raises(ValueError):
            ingot.create(place, shape=3, dtype="i4", overwrite=True, **wrong)
    assert content(place) == before


@pytest.mark.parametrize("kind", ["array", "table", "group"])
def test_an_error_after_a_creation_has_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from ingot import api
    from ingot.containers import create_table, group

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(api, "array_handle", fail)
    monkeypatch.setattr(create_table, "table_handle", fail)
    monkeypatch.setattr(group, "group_handle", fail)
    make = {
        "array": lambda: ingot.array([1, 2], tmp_path / "x"),
        "table": lambda: ingot.table({"a": [1, 2]}, tmp_path / "x"),
        "group": lambda: ingot.group(tmp_path / "x"),
    }[kind]
    with pytest.raises(OSError, match="Input/output error") as raised:
        make()
    assert raised.value.__notes__ == ["the commit is done: readers see it"]
    monkeypatch.undo()
    assert type(ingot.open(tmp_path / "x")).__name__.lower() == kind


def test_another_array_is_read_window_by_window(tmp_path, monkeypatch):
    values = np.arange(60_000, dtype="<i4").reshape(300, 200)
    source = ingot.array(values, tmp_path / "a.zarr", chunks=(30, 70))
    monkeypatch.setattr(ingot.Array, "__array__", None)
    options = ingot.Options(limits=ingot.Limits(window_bytes=20_000))
    made = ingot.array(source, tmp_path / "b.zarr", dtype="<f8", chunks=(50, 50), options=options)
    assert made.dtype == np.dtype("<f8")
    assert np.array_equal(made[...], values)
    root = ingot.group(tmp_path / "g.zarr")
    first = root.array("x", source)
    again = ingot.open(tmp_path / "g.zarr")["x"]
    assert np.array_equal(root.array("y", again, order="F")[...], values)
    assert np.array_equal(first[...], values)


def test_the_package_lists_its_public_names_only() -> None:
    assert dir(ingot) == sorted(ingot.__all__)
    assert "stores" in dir(ingot)
    assert "TYPE_CHECKING" not in dir(ingot)


@pytest.mark.parametrize(
    "call",
    [
        lambda array: array.append([np.nan]),
        lambda array: array.append(["x"]),
        lambda array: array.__setitem__(0, "x"),
        lambda array: array.attrs.update(5),
        lambda array: ingot.array([1], attrs=5),
        lambda array: ingot.create(shape=3, dtype="foo"),
        lambda array: ingot.check(5),
        lambda array: ingot.repair(5),
    ],
)
def test_wrong_arguments_are_errors_of_ingot(call):
    array = ingot.array(np.arange(3))
    with pytest.raises(ingot.errors.IngotError) as caught:
        call(array)
    assert isinstance(caught.value, ValueError | TypeError)
    assert array[...].tolist() == [0, 1, 2]
