"""A new file is there complete or not at all, with and without files that have no name."""

import os
import signal

import pytest

from ingot.errors import ExistsError
from ingot.stores.local import new_file as module
from ingot.stores.local.new_file import new_file
from tests.storage import open_files
from tests.temporary import tmp_path as tmp_path


@pytest.fixture(params=[True, False], ids=["unnamed", "staged"])
def unnamed(request):
    return request.param


def write(path, data, unnamed, **how):
    with new_file(path, unnamed=unnamed) as file:
        os.write(file.descriptor, data)
        file.publish(**how)


@pytest.mark.parametrize("durable", [True, False])
def test_a_published_file_is_there_alone(tmp_path, unnamed, durable):
    write(tmp_path / "a", b"one", unnamed, durable=durable)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_not_published_is_not_there(tmp_path, unnamed):
    with new_file(tmp_path / "a", unnamed=unnamed) as file:
        os.write(file.descriptor, b"one")
        descriptor = file.descriptor
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_an_error_leaves_nothing(tmp_path, unnamed):
    with pytest.raises(KeyError), new_file(tmp_path / "a", unnamed=unnamed):
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_an_existing_file_is_replaced_only_on_request(tmp_path, unnamed):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ExistsError):
        write(tmp_path / "a", b"new", unnamed)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]
    write(tmp_path / "a", b"new", unnamed, overwrite=True)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path, unnamed):
    (tmp_path / "a").symlink_to("b")
    with pytest.raises(ExistsError):
        write(tmp_path / "a", b"new", unnamed)
    write(tmp_path / "a", b"new", unnamed, overwrite=True)
    assert not (tmp_path / "a").is_symlink()
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path, unnamed):
    with new_file(tmp_path / "a", unnamed=unnamed) as file:
        os.write(file.descriptor, b"new")
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(ExistsError):
            file.publish()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_without_files_that_have_no_name_a_staged_name_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_UNNAMED", 0)
    with new_file(tmp_path / "a") as file:
        [name] = os.listdir(tmp_path)
        assert name.startswith(".g-")
        file.publish()
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_that_is_absent_is_an_error(tmp_path, unnamed):
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "no" / "a", b"one", unnamed)


def test_long_names_have_staged_names(tmp_path):
    name = "n" * 250
    write(tmp_path / name, b"one", False)
    assert os.listdir(tmp_path) == [name]


def test_ctrl_c_while_the_file_is_opened_leaves_nothing(tmp_path, unnamed, monkeypatch):
    opened = os.open

    def interrupted(*arguments, **named):
        descriptor = opened(*arguments, **named)
        if "dir_fd" in named:
            signal.raise_signal(signal.SIGINT)
        return descriptor

    monkeypatch.setattr(os, "open", interrupted)
    listed = os.path.isdir("/proc/self/fd")
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "a", unnamed=unnamed):
        pytest.fail("the block is not entered")
    assert os.listdir(tmp_path) == []
    if listed:
        assert open_files(tmp_path) == []
