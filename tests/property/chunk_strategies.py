"""Data and recipes for chunks, as hypothesis draws them."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from ingot.native import Kernel

CODECS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
FILTERS = ("none", "shuffle", "bitshuffle")


@dataclass(frozen=True)
class Recipe:
    """The arguments of a kernel's ``compress``."""

    typesize: int
    codec: str
    level: int
    filter: str
    blocksize: int

    def compress(self, kernel: Kernel, data: bytes) -> bytes:
        return kernel.compress(
            data, self.typesize, self.codec, self.level, self.filter, self.blocksize
        )


recipes = st.builds(
    Recipe,
    typesize=st.one_of(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 255)),
    codec=st.sampled_from(CODECS),
    # The levels above make Zstandard slow, not different.
    level=st.integers(0, 6),
    filter=st.sampled_from(FILTERS),
    blocksize=st.one_of(st.just(0), st.integers(1, 64), st.integers(1, 6000)),
)

sizes = st.one_of(
    st.integers(0, 300),
    st.integers(0, 20_000),
    st.sampled_from([31, 32, 33, 127, 128, 129, 131_071, 131_072, 131_073, 200_003]),
)


def _noise(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def _counters(size: int, seed: int) -> bytes:
    steps = np.random.default_rng(seed).integers(0, 5, size // 8 + 1)
    return np.cumsum(steps).tobytes()[:size]


def _few_symbols(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 4, size, np.uint8).tobytes()


def _repeated(size: int, seed: int) -> bytes:
    pattern = np.random.default_rng(seed).bytes(1 + seed % 700)
    return (pattern * (size // len(pattern) + 1))[:size]


def _half_noise(size: int, seed: int) -> bytes:
    """Some blocks compress, some do not."""
    return bytes(size // 2) + _noise(size - size // 2, seed)


datas = st.builds(
    lambda make, size, seed: make(size, seed),
    st.sampled_from([_noise, _counters, _few_symbols, _repeated, _half_noise]),
    sizes,
    st.integers(0, 10_000),
)
