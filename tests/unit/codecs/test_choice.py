"""``codec="auto"``: a sample of the data chooses, by the rule and within the budget it states."""

import numpy as np
import pytest

import ingot
from ingot.codecs import choice
from ingot.codecs.compressors import Blosc

RANDOM = np.random.default_rng(5)
NOISE = RANDOM.integers(0, 256, 400_000, np.uint8)
SMALL = RANDOM.integers(0, 500, 100_000).astype("<i4")
"""Nine bits of each item vary, and bitshuffle makes runs of zeros of all others."""
WORDS = RANDOM.choice(RANDOM.normal(size=50), 100_000)
"""Few values of eight bytes: a shuffle tears apart what repeats."""


def cut(values):
    return [values[box].tobytes() for box in choice.pieces(values.shape, values.shape, 1)]


def chosen(values):
    return choice.choose(cut(values), Blosc().bind(values.itemsize))


def test_pieces_begin_with_the_first_item_and_end_with_the_last():
    boxes = choice.pieces((1_000_000,), (100_000,), 8)
    items = choice.PIECE_BYTES // 8
    assert len(boxes) == choice.PIECES
    assert boxes[0] == (slice(0, items),)
    assert boxes[-1] == (slice(1_000_000 - items, 1_000_000),)


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [((7,), (3,)), ((1,), (1,)), ((), ()), ((5, 4), (5, 4)), ((300, 200, 100), (10, 200, 100))],
)
def test_pieces_lie_in_the_array_and_are_no_longer_than_a_chunk(shape, chunk):
    for box in choice.pieces(shape, chunk, 8):
        lengths = [each.stop - each.start for each in box]
        assert 0 < np.prod(lengths) * 8 <= choice.PIECE_BYTES
        for each, length, most in zip(box, shape, chunk, strict=True):
            assert 0 <= each.start < each.stop <= length
            assert each.stop - each.start <= most


def test_an_array_without_items_has_no_pieces():
    assert choice.pieces((0, 5), (1, 5), 8) == []


def test_a_small_array_is_one_piece():
    assert choice.pieces((100,), (100,), 8) == [(slice(0, 100),)]


def test_the_budget_bounds_the_choice():
    options = [("quick", 100, 1.0), ("dense", 50, 5.0), ("slow", 10, 50.0)]
    assert choice.best(options, 10.0) == "dense"
    assert choice.best(options, 1.0) == "quick"
    assert choice.best(options, 100.0) == "slow"


def test_a_gain_of_three_percent_does_not_pay():
    assert choice.best([("quick", 103, 1.0), ("dense", 100, 2.0)], 10.0) == "quick"
    assert choice.best([("quick", 104, 1.0), ("dense", 100, 2.0)], 10.0) == "dense"


def test_a_budget_that_nothing_meets_allows_the_cheapest():
    assert choice.best([("a", 10, 5.0), ("b", 1, 6.0)], 1.0) == "a"


def test_what_no_codec_makes_smaller_gets_the_cheapest():
    assert chosen(NOISE).cname == "lz4"


def test_a_few_bits_of_each_item_are_bitshuffled():
    assert (chosen(SMALL).cname, chosen(SMALL).shuffle_word) == ("lz4", "bitshuffle")


def test_values_that_repeat_are_not_shuffled():
    assert (chosen(WORDS).cname, chosen(WORDS).shuffle_word) == ("zstd", "noshuffle")


def test_no_candidate_is_smaller_by_more_than_the_rule_allows():
    for values in (SMALL, WORDS, np.arange(50_000), np.cumsum(SMALL)):
        like = Blosc().bind(values.itemsize)
        sizes = {
            stage: sum(len(stage.encode(piece)) for piece in cut(values))
            for stage in (each.stage(like) for each in choice.CANDIDATES if each.cost <= 10)
        }
        assert sizes[chosen(values)] <= 1.03 * min(sizes.values())


def test_the_choice_is_the_same_each_time():
    assert {chosen(np.cumsum(SMALL)) for _ in range(3)} == {chosen(np.cumsum(SMALL))}


def test_a_format_may_refuse_candidates():
    kept = choice.choose(cut(WORDS), Blosc().bind(8), lambda stage: stage.cname == "blosclz")
    assert kept.cname == "blosclz"
    like = Blosc().bind(8)
    assert choice.choose(cut(WORDS), like, lambda stage: False) == like


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_every_column_of_a_table_gets_its_own(tmp_path, format):
    columns = {
        "small": SMALL,
        "words": WORDS,
        "text": [f"row {n % 97} of many" for n in range(len(SMALL))],
        "nulls": [None if n % 7 else n for n in range(len(SMALL))],
    }
    table = ingot.table(columns, tmp_path / "t", codec="auto", format=format)
    plain = ingot.table(columns, format=format)
    assert table["small"].codec[0].shuffle_word == "bitshuffle"
    assert table["words"].codec[0].cname == "zstd"
    # Blocks stay as short as the format wants them, for single rows.
    assert table["words"].codec[0].blocksize == plain["words"].codec[0].blocksize > 0
    assert table.stored_bytes < 0.8 * plain.stored_bytes
    assert ingot.open(tmp_path / "t").to_arrow().equals(plain.to_arrow())


def test_one_column_may_be_auto_and_the_others_not():
    table = ingot.table({"a": SMALL, "b": SMALL}, codec={"a": "auto", "b": "blosc:zlib:1"})
    assert table["a"].codec[0].shuffle_word == "bitshuffle"
    assert table["b"].codec[0].cname == "zlib"


@pytest.mark.parametrize(
    "format", ["zarr0", "zarr1", "zarr2", "zarr3", "bcolz", "blsk", "bloscpack"]
)
def test_arrays_of_every_format(format):
    values = WORDS if format == "bcolz" else WORDS.reshape(-1, 100)
    array = ingot.array(values, codec="auto", format=format)
    assert array.codec[0] != ingot.array(values, format=format).codec[0]
    assert array[...].tobytes() == values.tobytes()


def test_text_of_any_length_in_arrays_and_items():
    words = [f"row {n % 97} of many" for n in range(20_000)]
    array = ingot.array(words, dtype=str, codec="auto")
    assert array.stored_bytes < 0.8 * ingot.array(words, dtype=str).stored_bytes
    items = ingot.ragged(words, codec="auto")
    assert items.stored_bytes < 0.8 * ingot.ragged(words).stored_bytes
    assert items[:].tolist() == array[:].tolist() == words


def test_the_items_of_another_array_are_sampled():
    array = ingot.array(ingot.array(SMALL), codec="auto")
    assert array.codec[0].shuffle_word == "bitshuffle"
    assert np.array_equal(array[:], SMALL)


def test_a_stream_is_sampled_in_its_first_block(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    whole = pyarrow.table({"small": SMALL, "words": WORDS})
    stream = pyarrow.RecordBatchReader.from_batches(whole.schema, whole.to_batches(30_000))
    table = ingot.table(stream, tmp_path / "t.bcolz", codec="auto")
    assert table["small"].codec[0].shuffle_word == "bitshuffle"
    assert table.to_arrow().equals(whole)


def test_new_columns_and_members_of_groups():
    table = ingot.table({"a": SMALL})
    table.add_column("b", SMALL, codec="auto")
    assert table["b"].codec[0].shuffle_word == "bitshuffle"
    member = ingot.group().array("a", SMALL, codec="auto")
    assert member.codec[0].shuffle_word == "bitshuffle"


def test_no_data_no_choice():
    with pytest.raises(ingot.errors.ArgumentError, match="there are none"):
        ingot.create(shape=10, dtype="i4", codec="auto")
    empty = ingot.table({"a": np.zeros(0), "b": []}, codec="auto")
    assert empty["a"].codec == ingot.table({"a": np.zeros(0)})["a"].codec
