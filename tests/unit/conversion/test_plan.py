"""Plans: what may become of a dataset, and what is found before a byte is written."""

import numpy as np
import pytest

import ingot
from ingot.codecs.codec import parse_spelling, without_checksums
from ingot.conversion.plan import (
    ArrayPlan,
    Findings,
    GroupPlan,
    TablePlan,
    Wanted,
    kinds_of,
    leaves,
    make_plan,
)
from ingot.conversion.run import node_of
from ingot.errors import UnsupportedError
from ingot.formats.format import Kind
from ingot.formats.registry import FORMATS


def plan_of(dataset, target, found, **wanted):
    node, store = node_of(dataset)
    return make_plan(node, FORMATS[dataset.format], store, FORMATS[target], Wanted(**wanted), found)


def test_kinds():
    assert kinds_of(node_of(ingot.array([1]))[0]) == (Kind.ARRAY,)
    assert kinds_of(node_of(ingot.table({"a": [1]}))[0]) == (Kind.TABLE, Kind.GROUP)
    assert kinds_of(node_of(ingot.group())[0]) == (Kind.GROUP,)
    assert kinds_of(node_of(ingot.ragged(["a"]))[0]) == (Kind.RAGGED,)


def test_a_table_becomes_a_group_where_there_are_no_tables():
    table = ingot.table({"a": [1], "b": {"c": [2.0]}})
    found = Findings()
    plan = plan_of(table, "zarr3", found)
    assert isinstance(plan, GroupPlan)
    assert isinstance(plan.members["b"], GroupPlan)
    assert [name for name, _ in leaves(plan)] == ["a", "b/c"]
    assert found.changes == ["the table becomes a group of its columns"]
    assert isinstance(plan_of(table, "blsk", Findings()), TablePlan)


def test_columns_get_codecs_and_chunks_by_their_names():
    table = ingot.table({"a": np.arange(10), "b": np.arange(10)}, chunks=5)
    plan = plan_of(table, "zarr2", Findings(), codec={"a": "zlib:1"}, chunks={"b": 3})
    schemas = {name: leaf.schema for name, leaf in leaves(plan)}
    assert schemas["a"].codec[0].name == "zlib"
    assert schemas["b"].codec[0].name == "blosc"
    assert (schemas["a"].chunks, schemas["b"].chunks) == ((5,), (3,))


def test_attributes_that_the_target_cannot_hold_are_listed():
    array = ingot.array([1.0], format="blsk", attrs={"day": np.datetime64("2020-01-01"), "n": 1})
    found = Findings()
    plan = plan_of(array, "zarr3", found)
    assert isinstance(plan, ArrayPlan)
    assert list(plan.schema.attrs) == ["day", "n"]
    assert found.changes == []


def test_reasons_are_raised_together():
    found = Findings(["too long", "too wide", "too long"])
    with pytest.raises(UnsupportedError, match=r"^a: cannot be .* to b: too long; too wide$"):
        found.check("a", "b")
    Findings().check("a", "b")


def test_checksums_are_left_to_the_target():
    stages = (*parse_spelling("zlib:1"), *parse_spelling("crc32c"))
    assert without_checksums(stages) == stages[:1]
    made = ingot.convert(ingot.array([1, 2, 3]), format="zarr2")
    assert [stage.name for stage in made.codec] == ["blosc"]


def test_a_sample_of_the_source_chooses_the_codec(tmp_path):
    codes = np.random.default_rng(3).integers(0, 500, 100_000).astype("<i4")
    columns = {"codes": codes, "text": [f"row {n % 97} of many" for n in range(100_000)]}
    source = ingot.table(columns, tmp_path / "a.bcolz")
    table = ingot.convert(source, tmp_path / "b.blsk", codec="auto", verify=True)
    assert table["codes"].codec[0].shuffle_word == "bitshuffle"
    assert table["text"].codec[0].cname == "zstd"
    one = ingot.convert(source, tmp_path / "c.bcolz", codec={"codes": "auto"})
    assert one["codes"].codec[0].shuffle_word == "bitshuffle"
    assert one["text"].codec == source["text"].codec
    array = ingot.convert(ingot.array(codes), tmp_path / "d.zarr", codec="auto")
    assert array.codec[0].shuffle_word == "bitshuffle"
    empty = ingot.convert(ingot.ragged([], kind="utf8"), tmp_path / "e.blv", codec="auto")
    assert len(empty) == 0
