"""The choice of a codec by a sample: what ``codec="auto"`` stands for.

The sample is a few pieces of the data (`pieces`), which every candidate encodes. Of those that the
budget allows, the cheapest one is taken that stores the sample in hardly more than the smallest
(`best`). What a candidate costs is stated and not measured: the same data get the same codec,
however busy the machine is.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from ingot.codecs.codec import Buffer, CodecChain, Stage, without_checksums
from ingot.codecs.compressors import Blosc, Blosc2

__all__ = [
    "AUTO",
    "BUDGET",
    "CANDIDATES",
    "DIFFERENCES",
    "PIECES",
    "PIECE_BYTES",
    "Candidate",
    "best",
    "choose",
    "pieces",
    "stages_for",
]

AUTO: Final = "auto"
"""The codec that is chosen by a sample."""

PIECES: Final = 4
"""How many pieces a sample has, at equal distances from the first items to the last ones."""

PIECE_BYTES: Final = 128 << 10
"""How many bytes a piece has at most."""

BUDGET: Final = 10.0
"""The most that a codec may cost: nanoseconds of one processor for each byte, at 100 MB/s."""

_WORTH: Final = 1.03
"""How much larger than the smallest a sample may be stored, where that costs less."""

_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")

Option = TypeVar("Option")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A codec of Blosc, and what encoding a byte costs on one processor, in nanoseconds.

    >>> Candidate("zstd", 3, 2, 7.5).spelling
    'blosc:zstd:3:bitshuffle'
    """

    cname: str
    clevel: int
    shuffle: int
    cost: float
    delta: str = "none"
    """The filter that only chunks of Blosc 2 have."""

    @property
    def spelling(self) -> str:
        """The codec as callers spell it."""
        parameters = f"{self.cname}:{self.clevel}:{_SHUFFLES[self.shuffle]}"
        if self.delta == "none":
            return f"blosc:{parameters}"
        return f"blosc2:{parameters}:0:{self.delta}"

    def stage(self, like: Blosc) -> Blosc | Blosc2:
        """Return the codec for items and blocks of the size of another one."""
        plain = replace(like, cname=self.cname, clevel=self.clevel, shuffle=self.shuffle)
        return plain if self.delta == "none" else Blosc2(plain, self.delta)


# Measured on data that compress badly, one core of an AMD EPYC: 600, 350, 300, 130 and 50 MB/s.
_COSTS: Final = {
    ("lz4", 5): 1.7,
    ("zstd", 1): 2.9,
    ("blosclz", 5): 3.3,
    ("zstd", 3): 7.7,
    ("zstd", 5): 20.0,
}

CANDIDATES: Final = tuple(
    Candidate(cname, clevel, shuffle, cost)
    for (cname, clevel), cost in _COSTS.items()
    for shuffle in range(len(_SHUFFLES))
)
"""What may be tried, cheap ones first; `choose` tries those within the budget."""

_DELTA_COST: Final = 0.2
"""What a filter of differences costs beside the codec behind it."""

DIFFERENCES: Final = tuple(
    Candidate(cname, clevel, 1, cost + _DELTA_COST, delta)
    for (cname, clevel), cost in _COSTS.items()
    for delta in ("items", "bytes")
    if cname != "blosclz"
)
"""What may be tried beside them, where a format stores chunks of Blosc 2 with such filters."""


def pieces(shape: Sequence[int], chunk: Sequence[int], itemsize: int) -> list[tuple[slice, ...]]:
    """Return the boxes of an array that are its sample: items that lie side by side in a chunk.

    >>> pieces((10, 1_000_000), (1, 1_000_000), 8)[1]
    (slice(3, 4, None), slice(327872, 344256, None))
    >>> pieces((10,), (10,), 8)
    [(slice(0, 10, None),)]
    """
    if not math.prod(shape):
        return []
    room = max(1, PIECE_BYTES // max(1, itemsize))
    box: list[int] = []
    for length, most in zip(reversed(shape), reversed(chunk), strict=True):
        box.insert(0, min(length, most, room))
        room = max(1, room // box[0])
    spare = [length - own for length, own in zip(shape, box, strict=True)]
    steps = range(PIECES if any(spare) else 1)
    starts = dict.fromkeys(tuple(free * step // (PIECES - 1) for free in spare) for step in steps)
    return [
        tuple(slice(start, start + own) for start, own in zip(corner, box, strict=True))
        for corner in starts
    ]


def best(options: Iterable[tuple[Option, int, float]], budget: float) -> Option:
    """Return one of several options, each with the bytes that it stores and with its cost.

    It is the cheapest of those that store at most 3 % more than the smallest which the budget
    allows. The cheapest of all is always allowed.

    >>> best([("a", 100, 1.0), ("b", 70, 2.0), ("c", 69, 3.0), ("d", 10, 99.0)], 5.0)
    'b'
    """
    given = list(options)
    allowed = max(budget, min(cost for _, _, cost in given))
    affordable = [each for each in given if each[2] <= allowed]
    least = min(size for _, size, _ in affordable)
    near = [each for each in affordable if each[1] <= _WORTH * least]
    return min(near, key=lambda each: (each[2], each[1]))[0]


def choose(
    sample: Iterable[Buffer], like: Blosc, accepts: Callable[[Stage], bool] = lambda _: True
) -> Blosc:
    """Return the codec for bytes of which a sample is given; items and blocks are as of `like`.

    `accepts` says which codecs a format can store. Without a sample, the codec is `like` itself.

    >>> choose([np.random.default_rng(1).bytes(9999)], Blosc("zstd")).cname
    'lz4'
    """
    chosen = _chosen(sample, like, CANDIDATES, accepts)
    assert isinstance(chosen, Blosc), "no candidate has further filters"
    return chosen


def _chosen(
    sample: Iterable[Buffer],
    like: Blosc,
    candidates: Iterable[Candidate],
    accepts: Callable[[Stage], bool],
) -> Blosc | Blosc2:
    """Return the best of the candidates that a format can store."""
    given = [data for data in sample if len(data)]
    stages = {
        each.stage(like): each.cost
        for each in candidates
        # A shuffle of single bytes changes nothing.
        if each.cost <= BUDGET and not (like.typesize == each.shuffle == 1)
    }
    trials = [
        (stage, sum(len(stage.encode(data)) for data in given), cost)
        for stage, cost in stages.items()
        if given and accepts(stage)
    ]
    return best(trials, BUDGET) if trials else like


def stages_for(
    chain: CodecChain,
    stages: Sequence[Stage],
    sample: Iterable[np.ndarray[Any, Any]],
    accepts: Callable[[tuple[Stage, ...]], bool],
) -> tuple[Stage, ...]:
    """Return the stages of a chain with another Blosc codec, chosen by pieces of the array.

    A chain without one stays as it is. Checksums are left out: the format adds them by itself.
    """
    like = next((stage for stage in chain.compressors if isinstance(stage, Blosc)), None)
    bare = without_checksums(stages)
    if like is None:
        return bare

    def with_codec(chosen: Stage) -> tuple[Stage, ...]:
        return tuple(chosen if isinstance(stage, Blosc) else stage for stage in bare)

    plain = CodecChain(chain.filters, chain.serializer)
    encoded = (plain.encode(each) for each in sample)
    candidates = (*CANDIDATES, *DIFFERENCES)
    return with_codec(
        _chosen(encoded, like, candidates, lambda chosen: accepts(with_codec(chosen)))
    )
