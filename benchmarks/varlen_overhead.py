"""Bytes per item of a file of variable-length items, by the length of items and of packs.

Prints the table of docs/formats/varlen.md: words drawn at random from a vocabulary of 30 000.
"""

import numpy as np

import ingot
from ingot.stores import MemoryStore

MEANS = (10, 60, 600, 4000, 14_000)
TOTAL = 4_000_000
VOCABULARY = 30_000


def texts(mean: int, rng: np.random.Generator) -> list[str]:
    """Return texts of words whose mean length is about `mean` bytes."""
    lengths = rng.integers(2, 12, VOCABULARY)
    words = ["".join(map(chr, rng.integers(97, 123, length))) for length in lengths]
    # Some words are much more frequent than others, as in a language.
    weights = 1 / np.arange(1, VOCABULARY + 1)
    means = mean / 7 * rng.uniform(0.5, 1.5, max(300, TOTAL // mean))
    counts = np.maximum(1, np.rint(means)).astype(int)
    drawn = rng.choice(VOCABULARY, int(counts.sum()), p=weights / weights.sum())
    chosen = np.split(drawn, np.cumsum(counts)[:-1])
    return [" ".join(words[each] for each in own.tolist()) for own in chosen]


def size(items: list[str], **layout: object) -> float:
    """Return the bytes per item of a file."""
    store = MemoryStore()
    ingot.ragged(items, store, codec="blosc:zstd:5:0", checksum="adler32", **layout)
    return (store.size("data.blv") or 0) / len(items)


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(1)
    for mean in MEANS:
        items = texts(mean, rng)
        raw = sum(map(len, items)) / len(items)
        sizes = [size(items, packed=False)]
        sizes += [size(items, packed=True, pack_bytes=each << 10) for each in (16, 64, 256)]
        cells = " | ".join(f"{each:,.1f}" for each in (raw, *sizes))
        print(f"| {cells} |", flush=True)


if __name__ == "__main__":
    main()
