"""The codecs of new Zarr arrays whose creator names none."""

from collections.abc import Iterable
from typing import Final

from ingot import dtypes
from ingot.codecs.codec import Stage
from ingot.codecs.compressors import Blosc, Blosc2
from ingot.codecs.text import VlenUtf8
from ingot.dtypes import DType
from ingot.errors import UnsupportedError

__all__ = ["REMOTE_BLOCK_BYTES", "check_stages", "default_stages"]

REMOTE_BLOCK_BYTES: Final = 32 << 10
"""The size of blocks where chunks come over a network: one of them is fetched for an element."""


def check_stages(stages: Iterable[Stage]) -> None:
    """Refuse codecs that no other reader of Zarr has.

    >>> check_stages([Blosc2(Blosc(), "items")])
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: zarr: no reader has a codec blosc2 with delta; blsk stores it
    """
    if any(isinstance(stage, Blosc2) and stage.delta != "none" for stage in stages):
        raise UnsupportedError("zarr: no reader has a codec blosc2 with delta; blsk stores it")


def default_stages(dtype: DType, *, remote: bool) -> tuple[Stage, ...]:
    """Return the default codecs of a new array, without a checksum.

    >>> import numpy as np
    >>> default_stages(np.dtype("<f4"), remote=False)
    (Blosc(cname='lz4', clevel=5, shuffle=1, blocksize=0, typesize=1),)
    """
    if dtype == dtypes.TEXT:
        return (VlenUtf8(), Blosc())
    if dtypes.is_variable(dtype):
        raise UnsupportedError(
            f"{dtype}: an array holds objects only with a codec that says what they are; "
            "ingot.ragged holds items of any length, ingot.table columns with nulls and time zones"
        )
    return (Blosc(blocksize=REMOTE_BLOCK_BYTES if remote else 0),)
