"""The filters of Blosc 2, worked out by hand on small blocks."""

import numpy as np
import numpy.typing as npt
import pytest

from ingot.blosc.filters import (
    BITSHUFFLE,
    BYTEDELTA,
    DELTA,
    INT_TRUNC,
    SHUFFLE,
    TRUNCATE,
    Pipeline,
)


def block(*values: int) -> npt.NDArray[np.uint8]:
    return np.array(values, np.uint8)


def test_delta_chains_the_words_of_the_first_block() -> None:
    pipeline = Pipeline(((DELTA, 0),), typesize=2)
    data = block(1, 0, 3, 0, 3, 1, 9)
    filtered = pipeline.apply(data, None)
    assert filtered.tolist() == [1, 0, 2, 0, 0, 1, 9]
    assert pipeline.undo(filtered, None).tolist() == data.tolist()


def test_delta_compares_other_blocks_with_the_first() -> None:
    pipeline = Pipeline(((DELTA, 0),), typesize=4)
    first = block(1, 2, 3, 4, 5, 6, 7, 8)
    filtered = pipeline.apply(block(1, 2, 3, 5, 7, 7), first)
    assert filtered.tolist() == [0, 0, 0, 1, 7, 7]
    assert pipeline.undo(filtered, first).tolist() == [1, 2, 3, 5, 7, 7]


@pytest.mark.parametrize(
    ("typesize", "word"),
    [(1, 1), (2, 2), (3, 1), (4, 4), (6, 1), (8, 8), (12, 1), (16, 8), (24, 8)],
)
def test_the_words_of_delta_follow_from_the_typesize(typesize: int, word: int) -> None:
    data = np.arange(1, 48, dtype=np.uint8)
    whole = data.size // word * word
    expected = data.copy()
    expected[word:whole] ^= data[: whole - word]
    assert Pipeline(((DELTA, 0),), typesize).apply(data, None).tolist() == expected.tolist()


def test_bytedelta_takes_differences_in_each_plane() -> None:
    pipeline = Pipeline(((BYTEDELTA, 2),), typesize=1)
    filtered = pipeline.apply(block(1, 2, 1, 7, 7, 1, 9), None)
    assert filtered.tolist() == [1, 1, 255, 7, 0, 250, 9]
    assert pipeline.undo(filtered, None).tolist() == [1, 2, 1, 7, 7, 1, 9]


def test_bitshuffle_leaves_only_the_last_items_alone() -> None:
    """Nine items: Blosc 2 filters eight of them, Blosc 1 none."""
    data = block(1, 0, 1, 0, 0, 0, 0, 128, 77)
    partial = Pipeline(((BITSHUFFLE, 0),), typesize=1)
    assert partial.apply(data, None).tolist() == [5, 0, 0, 0, 0, 0, 0, 128, 77]
    whole = Pipeline(((BITSHUFFLE, 0),), typesize=1, partial_bitshuffle=False)
    assert whole.apply(data, None).tolist() == data.tolist()


def test_shuffle_goes_by_its_metadata_first() -> None:
    data = np.frombuffer(b"aAbBcC.", np.uint8)
    assert Pipeline(((SHUFFLE, 2),), typesize=7).apply(data, None).tobytes() == b"abcABC."
    assert Pipeline(((SHUFFLE, 0),), typesize=2).apply(data, None).tobytes() == b"abcABC."


@pytest.mark.parametrize(("kind", "mantissa"), [("<f4", 23), ("<f8", 52)])
def test_truncation_clears_the_low_bits(kind: str, mantissa: int) -> None:
    values = np.array([np.pi, -1e-30, 1.0], kind)
    raw = values.view(np.uint8)
    for bits in (0, 1, 10, mantissa):
        kept = Pipeline(((TRUNCATE, bits),), values.itemsize).apply(raw, None).view(kind)
        assert np.all(np.abs(values - kept) < np.abs(values) * 2.0**-bits)
        cleared = kept.view(f"<u{values.itemsize}") & (2 ** (mantissa - bits) - 1)
        assert not cleared.any()
    assert values[0] == np.array(np.pi, kind)


def test_truncation_is_nothing_to_undo() -> None:
    data = block(1, 2, 3, 4)
    assert Pipeline(((TRUNCATE, 5), (INT_TRUNC, 3)), 4).undo(data, None).tolist() == [1, 2, 3, 4]


def test_steps_are_undone_in_reverse() -> None:
    steps = ((SHUFFLE, 0), (DELTA, 0), (BITSHUFFLE, 0), (BYTEDELTA, 3), (SHUFFLE, 5))
    random = np.random.default_rng(5)
    for size in (1, 7, 8, 100, 333):
        first, data = (random.integers(0, 256, size, np.uint8) for _ in range(2))
        pipeline = Pipeline(steps, typesize=4)
        for reference in (None, first):
            kept = data.copy()
            filtered = pipeline.apply(data, reference)
            assert pipeline.undo(filtered, reference).tolist() == kept.tolist()
            assert data.tolist() == kept.tolist()


@pytest.mark.parametrize(
    ("steps", "typesize", "text"),
    [
        (((INT_TRUNC, 3),), 4, "filter 36 cannot be applied"),
        (((34, 0),), 4, "filter 34 cannot be applied"),
        (((SHUFFLE, 256),), 4, "metadata 256"),
        (((TRUNCATE, 5),), 2, "items of 4 or 8 bytes, they have 2"),
        (((TRUNCATE, 24),), 4, "keeps 24 bits"),
        (((TRUNCATE, 53),), 8, "keeps 53 bits"),
    ],
)
def test_what_cannot_be_applied_is_refused(
    steps: tuple[tuple[int, int], ...], typesize: int, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Pipeline(steps, typesize).check_applicable()
