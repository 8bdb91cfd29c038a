"""Arrays and tables as text, in the style of NumPy 1.13, which bcolz keeps."""

from typing import Any, Final

import numpy as np

__all__ = ["array2string", "get_printoptions", "human_readable_size", "set_printoptions"]

_options: Final[dict[str, Any]] = {
    "precision": 8,
    "threshold": 1000,
    "edgeitems": 3,
    "linewidth": 75,
    "suppress": False,
    "nanstr": "nan",
    "infstr": "inf",
    "formatter": None,
}


def set_printoptions(**options: Any) -> None:
    """Set how arrays are printed; the options are those of `numpy.set_printoptions`."""
    for name, value in options.items():
        if name not in _options:
            raise TypeError(f"set_printoptions() got an unexpected keyword argument '{name}'")
        if value is not None or name == "formatter":
            _options[name] = value


def get_printoptions() -> dict[str, Any]:
    """Return how arrays are printed.

    >>> get_printoptions()["edgeitems"]
    3
    """
    return dict(_options)


def array2string(array: Any, **options: Any) -> str:
    """Return an array, carray or ctable as text; only its ends are read when it is long.

    >>> print(array2string(np.arange(10_000)))
    [   0    1    2 ..., 9997 9998 9999]
    """
    chosen = {**_options, **{name: value for name, value in options.items() if value is not None}}
    threshold, edge = chosen.pop("threshold"), chosen.pop("edgeitems")
    line, suppress = chosen.pop("linewidth"), chosen.pop("suppress")
    names = {"nanstr", "infstr"}
    with np.printoptions(**{name: chosen.pop(name) for name in names}, legacy="1.13"):
        size = int(np.prod(array.shape))
        few = size <= threshold
        if few or len(array) <= 2 * edge + 1:
            items = array[:]
        else:
            # An item more than is shown stands for those that are left out.
            items = np.concatenate([array[: edge + 1], array[len(array) - edge :]])
        return np.array2string(
            items,
            max_line_width=line,
            suppress_small=suppress,
            threshold=threshold if few else 0,
            edgeitems=edge,
            legacy="1.13",
            **chosen,
        )


def human_readable_size(size: float) -> str:
    """Return a number of bytes with its unit.

    >>> human_readable_size(16384)
    '16.00 KB'
    """
    if size < 2**10:
        return f"{size}"
    for power, unit in ((2, "KB"), (3, "MB"), (4, "GB")):
        if size < 2 ** (10 * power):
            return f"{size / 2 ** (10 * (power - 1)):.2f} {unit}"
    return f"{size / 2**40:.2f} TB"
