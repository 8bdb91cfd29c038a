"""Evaluation of an expression over carrays and arrays, block by block."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ingot.compat.bcolz.carray_ext import carray
from ingot.compat.bcolz.defaults import defaults
from ingot.compat.bcolz.expressions import Names, bound

__all__ = ["eval", "evaluated"]


def eval(
    expression: str | bytes,
    vm: str | None = None,
    out_flavor: str | None = None,
    user_dict: Mapping[str, Any] | None = None,
    blen: int | None = None,
    **kwargs: Any,
) -> Any:
    """Return the value of an expression, as a carray, or an array with `out_flavor` "numpy".

    Names are those of `user_dict`, or of the caller: carrays, arrays and numbers. The text is
    parsed, and never executed. All values of `vm` mean NumPy. Other arguments are those of the
    new carray.

    >>> a, b = carray([1, 2, 3]), np.array([10, 20, 30])
    >>> eval("a * 2 + b")[:]
    array([12, 24, 36])
    """
    frame = sys._getframe(1)
    names = [user_dict or {}, frame.f_locals, frame.f_globals]
    return evaluated(expression, names, vm=vm, out_flavor=out_flavor, blen=blen, **kwargs)


def evaluated(
    expression: str | bytes,
    names: Names,
    *,
    vm: str | None = None,
    out_flavor: str | None = None,
    blen: int | None = None,
    **kwargs: Any,
) -> Any:
    """Return what `eval` does, with the names of some mappings."""
    vm = defaults.vm if vm is None else vm
    if vm not in ("numexpr", "python", "dask"):
        raise ValueError("`vm` must be either 'numexpr', 'python' or 'dask'")
    flavor = defaults.out_flavor if out_flavor is None else out_flavor
    found = bound(expression, names, vm=vm)
    if found.reduction is not None:
        return found.reduced(blen)
    if not found.arrays:
        return found.of(0, 1)
    if not found.length:
        return _result(found.of(0, 0), flavor, kwargs)
    result: Any = None
    for start, block in found.blocks(blen):
        if result is None:
            kwargs.setdefault("expectedlen", found.length)
            result = _result(block, flavor, kwargs, found.length)
        elif isinstance(result, carray):
            result.append(block)
            continue
        if isinstance(result, np.ndarray):
            result[start : start + len(block)] = block
    if isinstance(result, carray):
        result.flush()
    return result


def _result(block: Any, flavor: str, kwargs: Mapping[str, Any], length: int = 0) -> Any:
    """Return what the blocks are put into; a carray holds the first one already."""
    if flavor in ("bcolz", "carray"):
        return carray(block, **kwargs)
    return np.empty((length, *block.shape[1:]), block.dtype)
