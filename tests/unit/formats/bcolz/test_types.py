"""Types of bcolz arrays, in the spellings of all versions."""

from typing import Any

import numpy as np
import pytest

from ingot.formats.bcolz import types as bcolz_types


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("int32", "<i4"),
        ("uint8", "|u1"),
        ("float16", "<f2"),
        ("complex64", "<c8"),
        ("bool", "|b1"),
        ("datetime64[ns]", "<M8[ns]"),
        ("timedelta64[25us]", "<m8[25us]"),
        (">i4", ">i4"),
        ("|S7", "|S7"),
        ("[(u'a', '<i4'), ('b', '|S3', (2L,))]", [("a", "<i4"), ("b", "S3", (2,))]),
        (
            "{'names':['a','b'], 'formats':['i1','<f8'], 'offsets':[0,8], 'itemsize':16,"
            " 'aligned':True}",
            np.dtype("i1,f8", align=True).newbyteorder("<"),
        ),
    ],
    ids=str,
)
def test_types_in_all_spellings(text: str, dtype: Any) -> None:
    found, wanted = bcolz_types.parse(text), np.dtype(dtype)
    if wanted.names == ("f0", "f1"):
        assert [found.fields[name][1] for name in found.names] == [0, 8]  # type: ignore[union-attr, index]
        assert found.itemsize == 16
    else:
        assert found == wanted
