"""The parameters of compression, and the defaults that a program can change."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ingot.codecs.codec import Stage
from ingot.codecs.compressors import Blosc
from ingot.codecs.filters import Quantize
from ingot.dtypes import DType
from ingot.options import Options

__all__ = [
    "BITSHUFFLE",
    "NOSHUFFLE",
    "SHUFFLE",
    "Defaults",
    "blosc_compressor_list",
    "blosc_set_nthreads",
    "cparams",
    "defaults",
    "defaults_ctx",
    "filters",
    "options",
    "stages",
]

NOSHUFFLE: Final = 0
SHUFFLE: Final = 1
BITSHUFFLE: Final = 2

filters: Final[Mapping[int, str]] = {
    NOSHUFFLE: "noshuffle",
    SHUFFLE: "shuffle",
    BITSHUFFLE: "bitshuffle",
}
"""The names of the shuffle filters."""

_COMPRESSORS: Final = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_ENTRIES: Final = ("clevel", "shuffle", "cname", "quantize")
# Reading an item costs reading its block; see docs/decisions/0007-bcolz-blocks.md.
_BLOCK_BYTES: Final = 16 << 10
_threads: int | None = None


def blosc_compressor_list() -> list[str]:
    """Return the names of the compressors that a chunk can have.

    >>> "lz4" in blosc_compressor_list()
    True
    """
    return list(_COMPRESSORS)


def blosc_set_nthreads(nthreads: int) -> int:
    """Set how many threads one call may use; return the number before.

    >>> before = blosc_set_nthreads(2)
    >>> blosc_set_nthreads(before)
    2
    """
    global _threads
    before = Options(threads=_threads).thread_count()
    if nthreads < 1:
        raise ValueError(f"nthreads is {nthreads}, at least 1 is needed")
    _threads = nthreads
    return before


def options(*, allow_pickle: bool = False) -> Options:
    """Return how datasets are read and written at present."""
    return Options(
        threads=_threads,
        durability=defaults.durability,
        allow_pickle=allow_pickle or defaults.allow_pickle,
    )


class cparams:
    """The parameters of compression; what is not given is taken from the defaults.

    >>> cparams(clevel=9)
    cparams(clevel=9, shuffle=1, cname='lz4', quantize=0)
    """

    def __init__(
        self,
        clevel: int | None = None,
        shuffle: int | None = None,
        cname: str | None = None,
        quantize: int | None = None,
    ) -> None:
        self._checkparams(clevel, shuffle, cname, quantize)
        known = defaults.cparams
        self._clevel: int = known["clevel"] if clevel is None else clevel
        self._shuffle: int = known["shuffle"] if shuffle is None else shuffle
        self._cname: str = known["cname"] if cname is None else cname
        self._quantize: int = known["quantize"] if quantize is None else quantize

    @property
    def clevel(self) -> int:
        """The compression level."""
        return self._clevel

    @property
    def shuffle(self) -> int:
        """The shuffle filter."""
        return self._shuffle

    @property
    def cname(self) -> str:
        """The name of the compressor."""
        return self._cname

    @property
    def quantize(self) -> int:
        """The number of decimal digits that floats keep; 0 keeps them as they are."""
        return self._quantize

    @staticmethod
    def setdefaults(
        clevel: int | None = None,
        shuffle: int | None = None,
        cname: str | None = None,
        quantize: int | None = None,
    ) -> None:
        """Change the defaults of new parameters."""
        given = cparams._checkparams(clevel, shuffle, cname, quantize)
        for name, value in zip(_ENTRIES, given, strict=True):
            if value is not None:
                defaults.cparams[name] = value

    @staticmethod
    def _checkparams(
        clevel: Any = None, shuffle: Any = None, cname: Any = None, quantize: Any = None
    ) -> tuple[Any, Any, Any, Any]:
        for name, value in (("clevel", clevel), ("quantize", quantize)):
            if value is not None and not isinstance(value, int):
                raise ValueError(f"`{name}` must be an int.")
            if value is not None and value < 0:
                raise ValueError(f"`{name}` must be 0 or a positive integer.")
        if shuffle is not None and not isinstance(shuffle, int):
            raise ValueError("`shuffle` must be an int.")
        if shuffle is not None and shuffle not in filters:
            raise ValueError("`shuffle` value not allowed.")
        if cname is not None and cname not in _COMPRESSORS:
            raise ValueError(f"Compressor '{cname}' is not available in this build")
        return clevel, shuffle, cname, quantize

    def __repr__(self) -> str:
        return (
            f"cparams(clevel={self._clevel}, shuffle={self._shuffle}, "
            f"cname='{self._cname}', quantize={self._quantize})"
        )


class Defaults:
    """The defaults of a program: `vm`, `out_flavor`, `cparams`, and two that bcolz does not have.

    `durability` is that of `ingot.Options`: "process", as in bcolz, or "full", which survives a
    power cut. `allow_pickle` allows to open arrays of objects, which runs code from their files.

    >>> defaults.out_flavor = "tuple"
    Traceback (most recent call last):
    ValueError: 'tuple' is incorrect value for 'out_flavor' default
    """

    def __init__(self) -> None:
        self.choices: dict[str, tuple[str, ...]] = {
            "out_flavor": ("bcolz", "carray", "numpy"),
            "vm": ("numexpr", "python", "dask"),
        }
        self._vm = "numexpr"
        self._out_flavor = "bcolz"
        self._cparams: dict[str, Any] = {
            "clevel": 5,
            "shuffle": SHUFFLE,
            "cname": "lz4",
            "quantize": 0,
        }
        self.durability: Any = "process"
        self.allow_pickle = False

    def check_choices(self, name: str, value: Any) -> None:
        """Raise `ValueError` for a value that a default cannot have."""
        if value not in self.choices[name]:
            raise ValueError(f"'{value}' is incorrect value for '{name}' default")

    def check_cparams(self, value: Any) -> dict[str, Any]:
        """Return parameters as a new dictionary; raise `ValueError` if they are no parameters."""
        if isinstance(value, cparams):
            value = {name: getattr(value, name) for name in _ENTRIES}
        if not isinstance(value, dict):
            raise ValueError(
                f"this needs to be a cparams object or a dictionary and you passed '{type(value)}' "
            )
        if not all(name in value for name in _ENTRIES):
            raise ValueError(f"The dictionary must have the next entries: {list(_ENTRIES)}")
        return dict(zip(_ENTRIES, cparams._checkparams(**value), strict=True))

    @property
    def vm(self) -> str:
        """The virtual machine of expressions. All three names mean the same parser and NumPy."""
        return self._vm

    @vm.setter
    def vm(self, value: str) -> None:
        self.check_choices("vm", value)
        self._vm = value

    eval_vm = vm

    @property
    def out_flavor(self) -> str:
        """What `eval` returns: "bcolz" (or "carray") for a carray, "numpy" for an array."""
        return self._out_flavor

    @out_flavor.setter
    def out_flavor(self, value: str) -> None:
        self.check_choices("out_flavor", value)
        self._out_flavor = value

    eval_out_flavor = out_flavor

    @property
    def cparams(self) -> dict[str, Any]:
        """The parameters of compression, as a dictionary."""
        return self._cparams

    @cparams.setter
    def cparams(self, value: Any) -> None:
        self._cparams = self.check_cparams(value)


defaults: Final = Defaults()
"""The defaults that are in force."""


@contextmanager
def defaults_ctx(
    cparams: Any = None, vm: str | None = None, out_flavor: str | None = None
) -> Iterator[None]:
    """Use other defaults while a block runs.

    >>> with defaults_ctx(vm="python"):
    ...     defaults.vm
    'python'
    >>> defaults.vm
    'numexpr'
    """
    before = dict(defaults.cparams), defaults.vm, defaults.out_flavor
    try:
        if cparams:
            defaults.cparams = cparams
        if vm:
            defaults.vm = vm
        if out_flavor:
            defaults.out_flavor = out_flavor
        yield
    finally:
        defaults.cparams, defaults.vm, defaults.out_flavor = before


def stages(parameters: cparams, dtype: DType, chunk_bytes: int) -> list[Stage]:
    """Return the codecs of chunks of so many bytes.

    >>> import numpy as np
    >>> [stage.name for stage in stages(cparams(quantize=2), np.dtype("f8"), 2**18)]
    ['quantize', 'blosc']
    """
    blocksize = _BLOCK_BYTES if chunk_bytes > _BLOCK_BYTES else 0
    level = min(parameters.clevel, 9)
    blosc = Blosc(parameters.cname, level, int(parameters.shuffle), blocksize)
    if not parameters.quantize:
        return [blosc]
    if dtype.kind != "f":
        raise TypeError("quantize is meant only for floating point data")
    return [Quantize(parameters.quantize, dtype, dtype), blosc]
