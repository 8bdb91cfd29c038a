"""Maps of chunks are drawn by matplotlib."""

import numpy as np
import pytest

import ingot
from ingot.errors import ArgumentError
from ingot.interop.matplotlib import chunks_picture

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.mark.parametrize("chunks", [(10, 10), (5, 20)])
def test_the_picture_has_the_ratios(chunks):
    array = ingot.create(shape=(20, 40), dtype="f8", chunks=chunks)
    array[:10] = np.random.default_rng(1).normal(size=(10, 40))
    axes = array.plot_chunks()
    (image,) = axes.get_images()
    drawn = np.ma.filled(image.get_array(), 0)
    assert np.array_equal(drawn.reshape(-1), array.survey().ratio)
    assert axes.get_title() == repr(array)
    assert array.plot_chunks(axes) is axes


def test_other_numbers_of_axes():
    assert ingot.array(np.arange(100), chunks=10).plot_chunks().get_images()[0].get_array().shape
    cube = ingot.array(np.ones((4, 4, 4)), chunks=(2, 2, 2))
    assert cube.plot_chunks().get_images()[0].get_array().shape == (4, 2)


@pytest.mark.parametrize(("format", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_picture_has_the_format_that_is_asked_for(format, begin):
    assert chunks_picture((2, 3), np.arange(6.0), "a title", format).startswith(begin)


def test_an_unknown_format_of_pictures_is_named():
    with pytest.raises(ArgumentError, match=r"'docx' are unknown; there is .*png"):
        chunks_picture((1,), np.ones(1), "a title", "docx")
