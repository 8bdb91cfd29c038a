"""A source that is written while it is converted: the target is one state of it."""

import threading

import numpy as np
import pytest

import ingot

FORMATS = [name for name, holds in ingot.formats().items() if "array" in holds]
FAST = ingot.Options(durability="process", limits=ingot.Limits(window_bytes=30_000))


@pytest.mark.parametrize("format", FORMATS)
def test_the_target_is_one_state_of_a_source_that_changes(tmp_path, format):
    path = tmp_path / "a"
    ingot.array(np.zeros((200, 100), "<i8"), path, format=format, options=FAST).close()
    begun, ended, commits = threading.Event(), threading.Event(), 0

    def write():
        nonlocal commits
        with ingot.open(path, "r+", options=FAST) as array:
            while not ended.is_set():
                commits += 1
                array[...] = commits
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(10)
        for turn in range(3):
            made = ingot.convert(
                path, tmp_path / f"b{turn}.zarr", chunks=(37, 41), options=FAST, verify=True
            )
            assert len(np.unique(made[...])) == 1
    finally:
        ended.set()
        writer.join()
    assert commits > 1
