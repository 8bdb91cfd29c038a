"""Zarr 3 documents, chains, grids and maps: what is read, refused and written."""

import json
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.codecs.byteorder import Bytes
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import ChunkSpec, parse_spelling
from ingot.codecs.compressors import Blosc, Gzip
from ingot.codecs.filters import Transpose
from ingot.errors import (
    FormatError,
    IngotError,
    LimitError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import MOST_AXES
from ingot.formats.format import ArrayNode, GroupNode, Request
from ingot.formats.zarr import v3_codecs, v3_grids, v3_metadata
from ingot.formats.zarr.v3 import Zarr3Format, Zarr3Map
from ingot.formats.zarr.v3_groups import Zarr3GroupFormat
from ingot.formats.zarr.v3_metadata import V3ArrayMetadata, V3GroupMetadata
from ingot.formats.zarr.v3_sharding import Sharding
from ingot.stores import MemoryStore
from ingot.stores.store import Commit, Delete, Extent, Put, Store

LITTLE: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD: dict[str, Any] = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}


def named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


def regular(*lengths: int) -> dict[str, Any]:
    return named("regular", chunk_shape=list(lengths))


PLAIN: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [10, 7],
    "data_type": "int32",
    "chunk_grid": regular(4, 3),
    "chunk_key_encoding": named("default", separator="/"),
    "fill_value": 0,
    "codecs": [LITTLE, ZSTD],
    "attributes": {},
}


def parsed(**changes: Any) -> V3ArrayMetadata:
    metadata = v3_metadata.parse(json.dumps(PLAIN | changes).encode())
    assert isinstance(metadata, V3ArrayMetadata)
    return metadata


def chain_of(*codecs: Any, dtype: Any = "i4", shape: tuple[int, ...] = (4, 3)) -> Any:
    return v3_codecs.parse_chain(list(codecs), ChunkSpec(shape, np.dtype(dtype)))


def array_at(store: Store, path: str = "") -> Zarr3Map:
    node = Zarr3Format().open(store, path)
    assert isinstance(node, ArrayNode)
    assert isinstance(node.chunks, Zarr3Map)
    return node.chunks


class TestDocuments:
    def test_an_array_is_read(self) -> None:
        metadata = parsed(dimension_names=["x", None], attributes={"a": [1]})
        schema = metadata.schema
        assert (schema.shape, schema.chunks, schema.dtype) == ((10, 7), (4, 3), np.dtype("<i4"))
        assert (schema.dimension_names, schema.attrs) == (("x", None), {"a": [1]})
        assert metadata.template.key((1, 2)) == "c/1/2"

    def test_attributes_of_two_readers_are_apart(self) -> None:
        first, second = parsed(attributes={"a": [1]}), parsed(attributes={"a": [1]})
        first.schema.attrs["a"].append(2)
        assert second.schema.attrs == parsed(attributes={"a": [1]}).schema.attrs == {"a": [1]}

    @pytest.mark.parametrize(
        ("claim", "ndim", "key"),
        [
            ("default", 2, "c/1/2"),
            ({"name": "default"}, 2, "c/1/2"),
            (named("default", separator="."), 2, "c.1.2"),
            ("v2", 2, "1.2"),
            (named("v2", separator="/"), 2, "1/2"),
            ("default", 0, "c"),
            (named("default", separator="."), 0, "c"),
            ("v2", 0, "0"),
        ],
    )
    def test_keys_follow_their_encoding(self, claim: Any, ndim: int, key: str) -> None:
        shape = [10, 7][:ndim]
        metadata = parsed(chunk_key_encoding=claim, shape=shape, chunk_grid=regular(*[4, 3][:ndim]))
        assert metadata.template.key((1, 2)[:ndim]) == key
        assert metadata.template.parse(key, ndim) == (1, 2)[:ndim]

    def test_byte_order_is_held_as_it_is_stored(self) -> None:
        assert parsed(codecs=[named("bytes", endian="big")]).schema.dtype == np.dtype(">i4")
        shuffled = [named("numcodecs.delta", dtype="<i4"), named("bytes", endian="big")]
        assert parsed(codecs=shuffled).schema.dtype == np.dtype("=i4")

    def test_the_order_of_axes_is_stored(self) -> None:
        assert parsed(codecs=[named("transpose", order=[1, 0]), LITTLE]).schema.order == "F"
        assert parsed(codecs=[named("transpose", order=[0, 1]), LITTLE]).schema.order == "C"
        assert parsed(codecs=["bytes"], data_type="int8").schema.order == "C"

    def test_unknown_fields_are_kept_when_they_need_not_be_understood(self) -> None:
        extra = {"must_understand": False, "anything": [1]}
        metadata = parsed(ours=extra)
        again = json.loads(v3_metadata.pack(metadata.resized((3, 3)).described({"a": 1})))
        assert again == PLAIN | {"ours": extra, "shape": [3, 3], "attributes": {"a": 1}}

    def test_a_document_comes_back(self) -> None:
        assert json.loads(v3_metadata.pack(parsed())) == PLAIN

    def test_attributes_that_are_no_json_are_refused_before_they_are_written(self) -> None:
        with pytest.raises(FormatError, match="attributes"):
            parsed().described({"a": float("nan")})
        # What another program wrote stays.
        data = json.dumps(PLAIN | {"attributes": {"a": float("nan")}}).encode()
        metadata = v3_metadata.parse(data)
        assert isinstance(metadata, V3ArrayMetadata)
        assert b"NaN" in v3_metadata.pack(metadata.resized((1, 1)))

    def test_a_group_is_read_and_written(self) -> None:
        consolidated = {"kind": "inline", "must_understand": False, "metadata": {}}
        data = json.dumps(
            {"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}}
            | {"consolidated_metadata": consolidated}
        ).encode()
        group = v3_metadata.parse(data)
        assert isinstance(group, V3GroupMetadata)
        assert group.attrs == {"a": 1}
        again = json.loads(v3_metadata.pack(group.described({"b": 2})))
        assert again["attributes"] == {"b": 2}
        assert again["consolidated_metadata"] == consolidated


def rectilinear(*shapes: Any) -> dict[str, Any]:
    return named("rectilinear", kind="inline", chunk_shapes=list(shapes))


def test_rectilinear_grids_have_as_many_axes_and_runs_as_the_limits_say() -> None:
    most = MOST_AXES
    assert v3_grids.parse(rectilinear(*[[1]] * most), (1,) * most).chunks == (1,) * most
    runs = [1] * 2**20
    (axis,) = v3_grids.parse(rectilinear(runs), (2**20,)).rectilinear
    assert axis is not None
    assert len(axis.lengths) == 2**20
    for wrong in ([], [*runs, 1]):
        with pytest.raises(FormatError, match="list of 1 to 1048576 lengths"):
            v3_grids.parse(rectilinear(wrong), (2**20,))


HOSTILE: list[tuple[dict[str, Any], type[IngotError], str]] = [
    ({"zarr_format": 2}, FormatError, "zarr_format"),
    ({"zarr_format": True}, FormatError, "zarr_format"),
    ({"node_type": "table"}, FormatError, "node_type"),
    ({"shape": [-1, 7]}, FormatError, "shape"),
    ({"shape": [1.5, 7]}, FormatError, "shape"),
    ({"shape": "10"}, FormatError, "shape"),
    ({"shape": [2**62, 2**62]}, FormatError, "shape"),
    ({"shape": [1] * 40}, LimitError, "shape"),
    ({"shape": [10]}, FormatError, "axes"),
    ({"chunk_grid": regular(0, 3)}, FormatError, "chunk_shape"),
    ({"chunk_grid": regular(-4, 3)}, FormatError, "chunk_shape"),
    ({"chunk_grid": regular(4)}, FormatError, "chunk_shape has 1"),
    ({"chunk_grid": regular(2**40, 2**40)}, FormatError, "chunk_grid"),
    ({"chunk_grid": named("regular", chunk_shape=[4.0, 3])}, FormatError, "chunk_shape"),
    ({"chunk_grid": named("regular", chunk_shape=[4, 3], extra=1)}, UnsupportedError, "extra"),
    ({"chunk_grid": "regular"}, FormatError, "chunk_shape is missing"),
    ({"chunk_grid": named("hexagonal")}, UnsupportedError, "hexagonal"),
    ({"chunk_grid": regular(4, 3) | {"must_understand": False}}, FormatError, "must_understand"),
    ({"chunk_key_encoding": named("v3")}, UnsupportedError, "v3"),
    ({"chunk_key_encoding": named("default", separator="..")}, FormatError, "separator"),
    ({"chunk_key_encoding": named("default", separator="\0")}, FormatError, "separator"),
    ({"chunk_key_encoding": {"name": "v2", "must_understand": False}}, FormatError, "understood"),
    ({"chunk_key_encoding": named("default", separator="/", width=3)}, UnsupportedError, "width"),
    ({"chunk_key_encoding": named("v2", prefix="c")}, UnsupportedError, "prefix"),
    ({"chunk_key_encoding": {"name": "v2", "prefix": "c"}}, UnsupportedError, "prefix"),
    ({"fill_value": None}, FormatError, "fill_value"),
    ({"fill_value": 2**40}, FormatError, "fill_value"),
    ({"attributes": [1]}, FormatError, "attributes"),
    ({"dimension_names": ["x"]}, FormatError, "dimension_names"),
    ({"dimension_names": ["x", 3]}, FormatError, "dimension_names"),
    ({"dimension_names": "xy"}, FormatError, "dimension_names"),
    ({"storage_transformers": ["cache"]}, UnsupportedError, "storage_transformers"),
    ({"storage_transformers": {}}, UnsupportedError, "storage_transformers"),
    ({"ours": 1}, UnsupportedError, "ours"),
    ({"ours": {"must_understand": True}}, UnsupportedError, "ours"),
    ({"codecs": []}, FormatError, "codecs"),
    ({"codecs": None}, FormatError, "codecs"),
    ({"codecs": [LITTLE] + ["crc32c"] * 40}, FormatError, "codecs"),
    ({"codecs": [ZSTD]}, FormatError, "array"),
    ({"codecs": [named("transpose", order=[1, 0])]}, FormatError, "none of the codecs"),
    ({"codecs": [LITTLE, LITTLE]}, FormatError, "needs an array"),
    ({"codecs": [LITTLE, named("transpose", order=[1, 0])]}, FormatError, "needs an array"),
    ({"codecs": ["bytes"]}, FormatError, "endian is missing"),
    ({"codecs": [named("bytes", endian="middle")]}, FormatError, "endian"),
    ({"codecs": [LITTLE, "lz77"]}, UnsupportedError, "lz77"),
    ({"codecs": [LITTLE, 3]}, FormatError, r"codecs\[1\]"),
    ({"codecs": [LITTLE, named("gzip", level=10)]}, FormatError, "level"),
    ({"codecs": [LITTLE, named("zstd", level=23)]}, FormatError, "level"),
    ({"codecs": [LITTLE, named("zstd", level=1, window=3)]}, UnsupportedError, "window"),
    ({"codecs": [LITTLE, named("blosc", shuffle=1)]}, FormatError, "shuffle"),
    ({"codecs": [LITTLE, named("blosc", shuffle="shuffle", typesize=0)]}, FormatError, "typesize"),
    ({"codecs": [LITTLE, named("blosc", cname="lz5")]}, FormatError, "cname"),
    ({"codecs": [named("transpose", order=[0, 0]), LITTLE]}, FormatError, "order"),
    ({"codecs": [named("transpose", order=[0, 1, 2]), LITTLE]}, FormatError, "3 axes for 2"),
    ({"codecs": [named("transpose", order="A"), LITTLE]}, FormatError, "order"),
    ({"codecs": ["vlen-utf8"]}, FormatError, "variable length"),
    ({"codecs": ["vlen-bytes"]}, FormatError, "variable length"),
    ({"codecs": [LITTLE], "data_type": "string", "fill_value": ""}, FormatError, "no fixed size"),
    ({"codecs": [named("numcodecs.pickle"), LITTLE]}, UnsafeError, "pickle"),
    ({"codecs": [LITTLE, named("numcodecs.nothing")]}, UnsupportedError, "nothing"),
    ({"codecs": [LITTLE, named("numcodecs.shuffle", elementsize=5)]}, FormatError, "shuffle"),
]


@pytest.mark.parametrize(("changes", "error", "text"), HOSTILE)
def test_a_wrong_document_is_refused(
    changes: dict[str, Any], error: type[IngotError], text: str
) -> None:
    with pytest.raises(error, match=text):
        parsed(**changes)


@pytest.mark.parametrize("key", [key for key in PLAIN if key != "attributes"])
def test_a_field_that_must_be_there_is_missed(key: str) -> None:
    values = {name: value for name, value in PLAIN.items() if name != key}
    with pytest.raises(FormatError, match=f"{key} is missing"):
        v3_metadata.parse(json.dumps(values).encode())


def test_all_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(UnsupportedError, match=r"shape.*float31.*hexagons"):
        parsed(shape=[-1], data_type="float31", chunk_key_encoding="hexagons")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "configuration", "must_understand", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(sorted(PLAIN)), VALUES, min_size=1, max_size=3))
def test_no_document_brings_anything_but_our_errors(changes: dict[str, Any]) -> None:
    with suppress(IngotError):
        v3_metadata.parse(json.dumps(PLAIN | changes).encode())


@settings(max_examples=300)
@given(st.lists(VALUES, max_size=3), st.sampled_from(["codecs", "index_codecs", "chunk_shape"]))
def test_no_sharding_brings_anything_but_our_errors(values: list[Any], key: str) -> None:
    configuration = {"chunk_shape": [2, 3], "codecs": [LITTLE], "index_codecs": [LITTLE]}
    codec = named("sharding_indexed", **configuration | {key: values})
    with suppress(IngotError):
        parsed(codecs=[codec])


class TestChains:
    def test_shorthand_names_are_read(self) -> None:
        chain = chain_of("bytes", "crc32c", dtype="u1")
        assert (chain.serializer, chain.compressors) == (Bytes(), (Crc32c(),))

    def test_the_size_of_items_is_what_the_document_says(self) -> None:
        blosc = named("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=1, blocksize=0)
        assert chain_of(LITTLE, blosc).compressors == (Blosc(typesize=1),)
        del blosc["configuration"]["typesize"]
        assert chain_of(LITTLE, blosc).compressors == (Blosc(typesize=4),)

    def test_a_codec_that_readers_may_do_without_is_left_out(self) -> None:
        chain = chain_of(LITTLE, {"name": "hint", "must_understand": False}, "crc32c")
        assert chain.compressors == (Crc32c(),)

    @given(
        st.permutations([0, 1, 2]),
        st.sampled_from(["<i4", ">i4", "<c16", ">M8[s]", "|b1", "|S3", ">U2"]),
        st.lists(
            st.sampled_from(["blosc:zstd:3:bitshuffle", "gzip:9", "zstd:-3", "crc32c", "zlib"]),
            max_size=3,
        ),
        st.booleans(),
        st.integers(0, 2**32 - 1),
    )
    def test_chains_come_back_and_decode_what_they_encoded(
        self, axes: list[int], dtype: str, spellings: list[str], sharded: bool, seed: int
    ) -> None:
        spec = ChunkSpec((4, 2, 6), np.dtype(dtype))
        order = named("transpose", order=list(axes))
        endian = "big" if dtype[0] == ">" else "little"
        stages = [stage for text in spellings for stage in parse_spelling(text)]
        codecs = [order, named("bytes", endian=endian), *map(_spelled, stages)]
        if sharded:
            inner = {"chunk_shape": [2, 1, 3], "codecs": codecs, "index_codecs": [LITTLE, "crc32c"]}
            codecs = [named("sharding_indexed", **inner)]
        chain = v3_codecs.parse_chain(codecs, spec)
        assert v3_codecs.parse_chain(v3_codecs.pack_chain(chain, 3), spec) == chain
        if not sharded:
            content = np.random.default_rng(seed).bytes(spec.nbytes)
            content = bytes(octet % 2 for octet in content)
            items = np.frombuffer(content, spec.dtype).reshape(spec.shape)
            assert chain.decode(chain.encode(items), spec).tobytes() == items.tobytes()


def _spelled(stage: Any) -> dict[str, Any]:
    values = {key: value for key, value in stage.config().items() if key != "id"}
    if isinstance(stage, Blosc):
        values |= {"shuffle": stage.shuffle_word, "typesize": 4}
    if isinstance(stage, Crc32c):
        return {"name": "crc32c"}
    return named(stage.name, **values)


class TestSharding:
    CONFIGURATION: ClassVar[dict[str, Any]] = {
        "chunk_shape": [2, 3],
        "codecs": [LITTLE, "crc32c"],
        "index_codecs": [LITTLE, "crc32c"],
    }

    def test_a_configuration_is_read(self) -> None:
        metadata = parsed(codecs=[named("sharding_indexed", **self.CONFIGURATION)])
        sharding = metadata.sharding
        assert isinstance(sharding, Sharding)
        assert sharding.inner_chunks == (2, 3)
        assert sharding.inner_chain.compressors == (Crc32c(),)
        assert metadata.schema.chunks == (4, 3)
        assert sharding.index_chain.compressors == (Crc32c(),)
        assert sharding.index_location == "end"
        assert sharding.counts((4, 3)) == (2, 1)

    def test_the_byte_order_is_that_of_the_inner_chunks(self) -> None:
        changed = self.CONFIGURATION | {"codecs": [named("bytes", endian="big")]}
        assert parsed(codecs=[named("sharding_indexed", **changed)]).schema.dtype.str == ">i4"

    @pytest.mark.parametrize(
        ("changes", "error", "text"),
        [
            ({"chunk_shape": [3, 3]}, FormatError, "do not divide"),
            ({"chunk_shape": [8, 3]}, FormatError, "do not divide"),
            ({"chunk_shape": [2]}, FormatError, "do not divide|axes"),
            ({"chunk_shape": [0, 3]}, FormatError, "chunk_shape"),
            ({"index_location": "middle"}, FormatError, "index_location"),
            ({"index_codecs": [LITTLE, ZSTD]}, FormatError, "size varies"),
            ({"index_codecs": ["crc32c"]}, FormatError, "array"),
            ({"index_codecs": []}, FormatError, "index_codecs"),
            ({"codecs": []}, FormatError, "codecs"),
            ({"codecs": None}, FormatError, "codecs"),
            ({"more": 1}, UnsupportedError, "more"),
        ],
    )
    def test_a_wrong_configuration_is_refused(
        self, changes: dict[str, Any], error: type[IngotError], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            parsed(codecs=[named("sharding_indexed", **self.CONFIGURATION | changes)])

    def test_shards_in_shards_end_where_documents_do(self) -> None:
        codec: Any = LITTLE
        for _ in range(40):
            codec = named("sharding_indexed", **self.CONFIGURATION | {"codecs": [codec]})
        with pytest.raises(LimitError):
            parsed(codecs=[codec])


class TestRectilinear:
    GRID = named("rectilinear", kind="inline", chunk_shapes=[[1, [4, 2], 3], 3])

    def test_edges_are_read(self) -> None:
        schema = parsed(chunk_grid=self.GRID).schema
        assert schema.chunks == (4, 3)
        assert schema.grid.counts == (4, 3)
        assert [schema.grid.stored_shape((i, 0)) for i in range(4)] == [
            *[(1, 3), (4, 3), (4, 3), (3, 3)]
        ]

    def test_chunks_beyond_the_end_are_kept(self) -> None:
        metadata = parsed(shape=[5, 7], chunk_grid=self.GRID)
        assert metadata.schema.grid.counts == (2, 3)
        assert json.loads(v3_metadata.pack(metadata))["chunk_grid"] == self.GRID
        assert metadata.resized((10, 7)).schema.grid.counts == (4, 3)

    def test_growing_goes_on_with_the_last_length(self) -> None:
        metadata = parsed(chunk_grid=self.GRID).resized((20, 7))
        again = json.loads(v3_metadata.pack(metadata))
        assert again["chunk_grid"]["configuration"]["chunk_shapes"] == [[1, [4, 2], [3, 4]], 3]
        assert parsed(**again).schema.grid.counts == metadata.schema.grid.counts == (7, 3)

    @pytest.mark.parametrize(
        ("shapes", "error"),
        [
            ([[5, 4], 3], FormatError),
            ([[], 3], FormatError),
            ([[0, 10], 3], FormatError),
            ([[[4, 0], 10], 3], FormatError),
            ([[[4, 1, 1], 10], 3], FormatError),
            ([[10.0], 3], FormatError),
            ([10], FormatError),
            ("abc", FormatError),
            ([0, 3], FormatError),
            ([[[1, 2**40]], 3], LimitError),
            ([[[2**62, 4]], 3], FormatError),
        ],
    )
    def test_wrong_edges_are_refused(self, shapes: Any, error: type[IngotError]) -> None:
        grid = named("rectilinear", kind="inline", chunk_shapes=shapes)
        with pytest.raises(error, match="chunk_shapes"):
            parsed(chunk_grid=grid)

    def test_an_unknown_kind_is_refused(self) -> None:
        with pytest.raises(FormatError, match="kind"):
            parsed(chunk_grid=named("rectilinear", kind="file", chunk_shapes=[10, 7]))

    def test_an_unknown_field_is_refused(self) -> None:
        with pytest.raises(UnsupportedError, match="padding"):
            parsed(chunk_grid=named("rectilinear", kind="inline", chunk_shapes=[10, 7], padding=1))

    @given(
        st.lists(st.integers(1, 5), min_size=1, max_size=5),
        st.lists(st.integers(1, 5), min_size=1, max_size=5),
        st.data(),
    )
    def test_data_comes_back(self, rows: list[int], columns: list[int], data: Any) -> None:
        shape = (sum(rows), sum(columns))
        grid = named("rectilinear", kind="inline", chunk_shapes=[rows, columns])
        values = PLAIN | {"shape": shape, "chunk_grid": grid}
        store = MemoryStore({"zarr.json": json.dumps(values).encode()})
        array = ingot.open(store, "r+")
        expected = np.zeros(shape, "<i4")
        for number in range(3):
            key = tuple(
                slice(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))))
                for n in shape
            )
            array[key] = expected[key] = number + 1
        picked = data.draw(st.lists(st.integers(0, shape[0] - 1), max_size=5))
        assert (array[...] == expected).all()
        assert (array[picked] == expected[picked]).all()
        assert (array[::-2, 1::3] == expected[::-2, 1::3]).all()
        array.resize((shape[0] + 3, shape[1]))
        assert not array[shape[0] :].any()
        assert (ingot.open(store)[: shape[0]] == expected).all()


class TestMap:
    def request(self, dtype: Any = "<i4", **more: Any) -> Request:
        return Request((10, 7), np.dtype(dtype), np.zeros((), dtype)[()], (4, 3), **more)

    def made(self, store: Store, path: str = "", **layout: Any) -> tuple[Zarr3Map, Commit]:
        fmt = Zarr3Format()
        node, commit = fmt.create(store, fmt.design(self.request(), **layout), path, **layout)
        assert isinstance(node.chunks, Zarr3Map)
        return node.chunks, commit

    def test_a_new_array_has_a_checksum_behind_blosc(self) -> None:
        chunks, commit = self.made(MemoryStore())
        (edit,) = commit.publish
        assert isinstance(edit, Put)
        assert edit.key == "zarr.json"
        assert json.loads(edit.data)["codecs"] == [
            LITTLE,
            named("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0),
            {"name": "crc32c"},
        ]
        assert chunks.schema.chain.compressors == (Blosc(typesize=4), Crc32c())

    def test_a_checksum_is_not_doubled_and_can_be_left_out(self) -> None:
        design = Zarr3Format().design
        stages = (Gzip(1), Crc32c())
        assert design(self.request(stages=stages)).chain.compressors == stages
        assert design(self.request(stages=()), checksum=False).chain.compressors == ()
        assert design(self.request(stages=())).chain.compressors == (Crc32c(),)

    def test_settings_are_what_the_document_says(self) -> None:
        store = MemoryStore()
        chunks, commit = self.made(
            store,
            "a/b",
            order="F",
            dimension_names=["x", None],
            chunk_key_encoding="v2",
            dimension_separator="/",
        )
        store.apply(commit)
        assert sorted(store.names("a")) == ["b/", "zarr.json"]
        again = array_at(store, "a/b")
        assert again.template == chunks.template
        assert again.template.key((1, 2)) == "a/b/1/2"
        assert again.schema.order == "F"
        assert again.schema.chain.filters == (Transpose((1, 0)),)
        assert again.schema.dimension_names == ("x", None)
        root, group = Zarr3Format().open(store), Zarr3Format().open(store, "a")
        assert isinstance(root, GroupNode)
        assert isinstance(group, GroupNode)
        assert Zarr3GroupFormat().children(store, "") == ("a",)
        assert Zarr3GroupFormat().children(store, "a") == ("b",)

    @pytest.mark.parametrize(
        "layout",
        [
            {"order": "A"},
            {"dimension_names": ["x"]},
            {"dimension_names": "xy"},
            {"dimension_names": [1, 2]},
            {"chunk_key_encoding": "v1"},
            {"dimension_separator": "-"},
        ],
    )
    def test_wrong_settings_are_refused(self, layout: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(layout))):
            self.made(MemoryStore(), **layout)

    @pytest.mark.parametrize("path", ["a/../b", "...", "__a", "a/zarr.json"])
    def test_names_that_no_node_may_have_are_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match="name of a node"):
            self.made(MemoryStore(), path)

    @pytest.mark.parametrize("dtype", [">i4", [("a", ">i2"), ("b", "<f8"), ("c", "S3")]])
    def test_types_are_held_in_one_order_without_gaps(self, dtype: Any) -> None:
        schema = Zarr3Format().design(self.request(np.dtype(dtype)))
        metadata = V3ArrayMetadata.of(schema, v3_metadata.KeyEncoding())
        again = v3_metadata.parse(v3_metadata.pack(metadata))
        assert isinstance(again, V3ArrayMetadata)
        assert again.schema.dtype == schema.dtype
        assert again.schema.chain == schema.chain

    def test_filters_behind_bytes_have_no_name(self) -> None:
        stages = (*parse_spelling("zlib"), *parse_spelling("packbits"))
        with pytest.raises(UnsupportedError, match="filters stand before the codec"):
            Zarr3Format().design(self.request(stages=stages))

    @pytest.mark.parametrize("separator", ["/", "."])
    @pytest.mark.parametrize("encoding", ["default", "v2"])
    def test_resizing_removes_what_leaves_and_what_was_left(
        self, encoding: str, separator: str
    ) -> None:
        store = MemoryStore()
        chunks, commit = self.made(
            store, chunk_key_encoding=encoding, dimension_separator=separator
        )
        store.apply(commit)
        smaller, shrink = chunks.resized((4, 7))
        key = chunks.template.key
        assert {edit.key for edit in shrink.cleanup} == {
            key((row, column)) for row in (1, 2) for column in range(3)
        }
        assert all(isinstance(edit, Delete) for edit in shrink.cleanup)
        store.apply(Commit(publish=(Put(key((2, 1)), b"stray"),)))
        store.apply(shrink)
        _, grow = smaller.resized((5000 * 4, 7))
        assert all(edit.key != key((0, 0)) for edit in grow.prepare)
        store.apply(Commit(publish=(Put(key((4000, 1)), b"stray"),)))
        _, grow = smaller.resized((5000 * 4, 7))
        assert [edit.key for edit in grow.prepare] == [key((4000, 1))]

    def test_chunks_of_another_array_below_are_left_alone(self) -> None:
        store = MemoryStore({"c/x/zarr.json": b"{}", "c/0/0/zarr.json": b"{}"})
        chunks, commit = self.made(store, chunk_key_encoding="default")
        store.apply(commit)
        big, _ = chunks.resized((5000 * 4, 7))
        assert big.resized((4, 7))[1].cleanup == ()

    def test_what_has_become_a_group_is_gone(self) -> None:
        store = MemoryStore()
        chunks, commit = self.made(store)
        store.apply(commit)
        (data,) = store.read([Extent("zarr.json")])
        assert data is not None
        group = v3_metadata.pack(V3GroupMetadata())
        store.apply(Commit(publish=(Put("zarr.json", group),)))
        with pytest.raises(NotFoundError, match="group"):
            chunks.reopened(store)

    @pytest.mark.parametrize("shards", [None, (8, 3)])
    def test_an_array_is_removed_with_all_its_chunks(self, shards: Any) -> None:
        array = ingot.create(
            store := MemoryStore(),
            shape=(10, 7),
            dtype="i4",
            chunks=(4, 3),
            format="zarr3",
            shards=shards,
        )
        array[...] = 1
        others = {"c/x": b"", "notes": b""}
        store.apply(Commit(publish=tuple(Put(key, data) for key, data in others.items())))
        node = Zarr3Format().open(store)
        assert isinstance(node, ArrayNode)
        store.apply(node.chunks.removed())
        assert sorted(store.names()) == ["c/", "notes"]
        assert list(store.names("c/")) == ["x"]

    def test_there_must_be_a_document(self) -> None:
        with pytest.raises(NotFoundError, match=r"a/zarr\.json"):
            Zarr3Format().open(MemoryStore(), "a")
