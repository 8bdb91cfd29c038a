"""The interface of bcolz 1.2, on Ingot: ``import ingot.compat.bcolz as bcolz``.

Programs written for bcolz run unchanged. New arrays and tables are in memory, or in folders that
bcolz reads too. docs/bcolz-programs.md lists all calls, and what differs.

>>> import ingot.compat.bcolz as bcolz
>>> table = bcolz.ctable([bcolz.arange(5), bcolz.ones(5)], names=["a", "b"])
>>> [row.a for row in table.where("a * b > 2")]
[3, 4]
"""

from ingot.compat.bcolz import attrs
from ingot.compat.bcolz.arrayprint import array2string, get_printoptions, set_printoptions
from ingot.compat.bcolz.carray_ext import carray
from ingot.compat.bcolz.chunked_eval import eval
from ingot.compat.bcolz.ctable import ctable
from ingot.compat.bcolz.defaults import (
    BITSHUFFLE,
    NOSHUFFLE,
    SHUFFLE,
    blosc_compressor_list,
    blosc_set_nthreads,
    cparams,
    defaults,
    defaults_ctx,
    filters,
)
from ingot.compat.bcolz.toplevel import VERSION as __version__
from ingot.compat.bcolz.toplevel import (
    arange,
    blosc_version,
    dask_here,
    detect_number_of_cores,
    fill,
    fromiter,
    iterblocks,
    min_dask_version,
    min_numexpr_version,
    ncores,
    numexpr_here,
    ones,
    open,
    pandas_here,
    print_versions,
    set_nthreads,
    tables_here,
    test,
    walk,
    zeros,
)

__all__ = [
    "BITSHUFFLE",
    "NOSHUFFLE",
    "SHUFFLE",
    "__version__",
    "arange",
    "array2string",
    "attrs",
    "blosc_compressor_list",
    "blosc_set_nthreads",
    "blosc_version",
    "carray",
    "cparams",
    "ctable",
    "dask_here",
    "defaults",
    "defaults_ctx",
    "detect_number_of_cores",
    "eval",
    "fill",
    "filters",
    "fromiter",
    "get_printoptions",
    "iterblocks",
    "min_dask_version",
    "min_numexpr_version",
    "ncores",
    "numexpr_here",
    "ones",
    "open",
    "pandas_here",
    "print_versions",
    "set_nthreads",
    "set_printoptions",
    "tables_here",
    "test",
    "walk",
    "zeros",
]
