"""The contract of devices: memory of their own, and the kernels that fill it."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.device.window import Window

__all__ = ["Device"]


class Device(Protocol):
    """What arrays are read onto.

    Its arrays behave like NumPy's as far as `reshape`, `transpose`, `take`, assignment and the
    attributes `shape` and `dtype` go.
    """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array in C order; raise `LimitError` if memory lacks."""

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        """Return memory of the host that the device copies fast."""

    def upload(self, array: NDArray[Any]) -> Any:
        """Return an array of NumPy as one of the device."""

    def is_contiguous(self, array: Any) -> bool:
        """Return whether an array lies on the device in C order; raise unless it is one of it."""

    def submit(self, window: Window, result: Any) -> Callable[[], NDArray[np.uint32]]:
        """Begin to decode a window into a result in C order.

        The function that is returned waits for the end, and returns the status of each stream.
        """

    def swap_bytes(self, result: Any, width: int) -> None:
        """Turn the bytes of all words of a result around, once all windows are decoded."""
