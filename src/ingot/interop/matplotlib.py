"""matplotlib: maps of chunks as pictures. It is optional, and imported on first use."""

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.errors import ArgumentError, UnsupportedError

__all__ = ["chunks_picture", "draw_chunks"]


def draw_chunks(
    counts: tuple[int, ...], ratio: NDArray[np.float64], title: str, axes: Any = None
) -> Any:
    """Draw a map of chunks, coloured by their ratio, and return the axes.

    A grid with more than two axes is drawn as its planes, one below the other. Chunks without a
    ratio, of which nothing is stored, stay empty.
    """
    if axes is None:
        axes = _pyplot().subplots()[1]
    columns = counts[-1] if len(counts) > 1 else math.ceil(math.sqrt(max(1, counts[0])))
    rows = -(-len(ratio) // max(1, columns))
    cells = np.zeros(rows * columns)
    cells[: len(ratio)] = ratio
    image = axes.imshow(np.ma.masked_equal(cells.reshape(rows, columns), 0), aspect="auto")
    axes.figure.colorbar(image, ax=axes, label="ratio")
    axes.set_title(title)
    return axes


def chunks_picture(
    counts: tuple[int, ...], ratio: NDArray[np.float64], title: str, format: str
) -> bytes:
    """Return a map of chunks as the bytes of a picture, such as one of format "png" or "svg"."""
    # A figure of its own opens no window, whatever the display is.
    figure = _matplotlib().figure.Figure(layout="constrained")
    known = figure.canvas.get_supported_filetypes()
    if format not in known:
        raise ArgumentError(
            f"pictures of format {format!r} are unknown; there is {', '.join(known)}"
        )
    draw_chunks(counts, ratio, title, figure.subplots())
    picture = io.BytesIO()
    figure.savefig(picture, format=format)
    return picture.getvalue()


def _pyplot() -> Any:
    _matplotlib()
    from matplotlib import pyplot

    return pyplot


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError:
        raise UnsupportedError("matplotlib is not installed: pip install matplotlib") from None
    return matplotlib
