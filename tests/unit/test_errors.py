import copy
import errno
import pickle
import re

import pytest

from ingot import errors

EXPECTED_BASES = {
    "FormatError": ValueError,
    "CorruptionError": ValueError,
    "UnsupportedError": ValueError,
    "UnsafeError": ValueError,
    "LimitError": ValueError,
    "ArgumentError": ValueError,
    "ArgumentOverflowError": OverflowError,
    "ArgumentTypeError": TypeError,
    "LockedError": BlockingIOError,
    "ReadOnlyError": PermissionError,
    "NotFoundError": FileNotFoundError,
    "MemberError": KeyError,
    "ExistsError": FileExistsError,
    "RemoteError": OSError,
    "AccessError": PermissionError,
    "SelectionError": IndexError,
    "AxisError": ValueError,
    "ColumnError": KeyError,
    "UnknownNameError": AttributeError,
    "KernelError": ImportError,
}

CLASSES = [getattr(errors, name) for name in EXPECTED_BASES]


@pytest.mark.parametrize(("name", "builtin"), EXPECTED_BASES.items())
def test_each_error_is_ours_and_the_builtin_one_expects(name, builtin):
    error = getattr(errors, name)("a message")
    assert isinstance(error, errors.IngotError)
    assert isinstance(error, builtin)


def test_tree_is_complete():
    assert set(errors.__all__) == {"IngotError", "DamageWarning", *EXPECTED_BASES}


@pytest.mark.parametrize("error_class", CLASSES)
def test_message_is_what_is_printed(error_class):
    message = "'prices.ingot': cbytes claims 400 bytes, 60 are stored"
    assert str(error_class(message)) == message


@pytest.mark.parametrize("error_class", CLASSES)
def test_error_survives_pickling_and_copying(error_class):
    error = error_class("a message")
    error.add_note("in chunk 7")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is error_class
        assert str(twin) == "a message"
        assert twin.__notes__ == ["in chunk 7"]


@pytest.mark.parametrize("name", ["LockedError", "ReadOnlyError", "NotFoundError"])
def test_system_errors_still_take_errno_and_file_name(name):
    error = getattr(errors, name)(errno.EACCES, "not allowed", "prices.ingot")
    assert (error.errno, error.filename) == (errno.EACCES, "prices.ingot")


def test_drawing_shows_every_error_with_its_builtin():
    drawn = dict(re.findall(r"[├└]── (\w+) +(\w+)", errors.__doc__))
    assert drawn == {name: builtin.__name__ for name, builtin in EXPECTED_BASES.items()}
