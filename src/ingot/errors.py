"""The errors that Ingot raises on purpose.

There is one class for each kind of failure that a caller may want to distinguish. Each error is
also the built-in error a Python programmer would expect in its place, so code that already catches
``ValueError``, ``IndexError`` or ``OSError`` keeps working::

    IngotError                     any failure below; catch this to catch them all
    ├── FormatError                ValueError: the bytes do not follow the format they claim
    ├── CorruptionError            ValueError: well-formed, but checksum, length or data disagree
    ├── UnsupportedError           ValueError: a known feature that Ingot does not offer
    ├── UnsafeError                ValueError: reading on would run code or leave the store
    ├── LimitError                 ValueError: larger than the limits the caller set
    ├── ArgumentError              ValueError: a value that a function does not take
    ├── ArgumentOverflowError      OverflowError: a number that its type cannot hold
    ├── ArgumentTypeError          TypeError: a value of a type that a function does not take
    ├── LockedError                BlockingIOError (OSError): another writer holds the lock
    ├── ReadOnlyError              PermissionError (OSError): opened without the right to write
    ├── NotFoundError              FileNotFoundError (OSError): nothing of that name exists
    │   └── MemberError            KeyError: a group has no member of that name
    ├── ExistsError                FileExistsError (OSError): something of that name exists
    ├── RemoteError                OSError: a store that is reached by a network failed
    │   └── AccessError            PermissionError: it refuses the credentials, or has none
    ├── SelectionError             IndexError: the selection does not fit the data
    │   ├── AxisError              ValueError: an array has no axis of that number
    │   └── ColumnError            KeyError: a table has no column of that name
    ├── UnknownNameError           AttributeError: nothing here has that name
    └── KernelError                ImportError: the compute kernel asked for cannot be used

A message names the file or field, what it claims, and what is the case. Code that catches an error
on its way up and can say where it happened adds a note with ``add_note`` and raises it again:

>>> try:
...     raise CorruptionError("Blosc chunk: cbytes claims 400 bytes, 60 are stored")
... except IngotError as error:
...     error.add_note("in chunk 7 of column 'price'")
...     print(error, error.__notes__)
Blosc chunk: cbytes claims 400 bytes, 60 are stored ["in chunk 7 of column 'price'"]
"""

__all__ = [
    "AccessError",
    "ArgumentError",
    "ArgumentOverflowError",
    "ArgumentTypeError",
    "AxisError",
    "ColumnError",
    "CorruptionError",
    "DamageWarning",
    "ExistsError",
    "FormatError",
    "IngotError",
    "KernelError",
    "LimitError",
    "LockedError",
    "MemberError",
    "NotFoundError",
    "ReadOnlyError",
    "RemoteError",
    "SelectionError",
    "UnknownNameError",
    "UnsafeError",
    "UnsupportedError",
]


class IngotError(Exception):
    """Any failure that Ingot reports on purpose.

    >>> issubclass(FormatError, IngotError)
    True
    """

    def add_note(self, note: str) -> None:
        """Add a note once: several levels of callers may add the same one."""
        if note not in getattr(self, "__notes__", ()):
            super().add_note(note)


class FormatError(IngotError, ValueError):
    """The bytes do not follow the format they claim to be in.

    >>> raise FormatError("Blosc chunk: typesize is 0, the least is 1")
    Traceback (most recent call last):
    ingot.errors.FormatError: Blosc chunk: typesize is 0, the least is 1
    """


class CorruptionError(IngotError, ValueError):
    """Bytes are missing, a checksum disagrees, or a stream decodes to something impossible.

    >>> raise CorruptionError("Blosc chunk: cbytes claims 400 bytes, 60 are stored")
    Traceback (most recent call last):
    ingot.errors.CorruptionError: Blosc chunk: cbytes claims 400 bytes, 60 are stored
    """


class DamageWarning(UserWarning):
    """A read with `Options(damaged="fill")` found chunks that it could not read.

    `chunks` has the coordinates of each, its key, and what is wrong.

    >>> str(DamageWarning("prices", (((1,), "c/1", "the checksum differs"),)))
    'prices: 1 chunk cannot be read and is filled: (1,) in c/1 (the checksum differs)'
    """

    def __init__(self, where: str, chunks: "tuple[tuple[tuple[int, ...], str, str], ...]") -> None:
        self.chunks = chunks
        shown = ", ".join(f"{at} in {key} ({what})" for at, key, what in chunks[:10])
        more = f" and {len(chunks) - 10} more" if len(chunks) > 10 else ""
        many = "chunks cannot be read and are" if len(chunks) > 1 else "chunk cannot be read and is"
        super().__init__(f"{where}: {len(chunks)} {many} filled: {shown}{more}")


class UnsupportedError(IngotError, ValueError):
    """A feature Ingot recognises and does not offer; the file itself may be fine.

    >>> raise UnsupportedError("Zarr codec 'sharding_indexed': not available")
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: Zarr codec 'sharding_indexed': not available
    """


class UnsafeError(IngotError, ValueError):
    """Reading on would unpickle, follow a path out of the store, or open a special file.

    >>> raise UnsafeError("'../secret': the path leaves the store")
    Traceback (most recent call last):
    ingot.errors.UnsafeError: '../secret': the path leaves the store
    """


class LimitError(IngotError, ValueError):
    """Larger than the limits in force; raised before the memory is allocated.

    >>> raise LimitError("Blosc chunk: nbytes claims 4294967295 bytes, the limit is 2147483647")
    Traceback (most recent call last):
    ingot.errors.LimitError: Blosc chunk: nbytes claims 4294967295 bytes, the limit is 2147483647
    """


class ArgumentError(IngotError, ValueError):
    """A function was given a value that it does not take.

    >>> raise ArgumentError("mode is 'rw', not 'r' or 'r+'")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: mode is 'rw', not 'r' or 'r+'
    """


class ArgumentOverflowError(ArgumentError, OverflowError):
    """A function was given a number that its type cannot hold.

    >>> raise ArgumentOverflowError("Python integer 300 out of bounds for int8")
    Traceback (most recent call last):
    ingot.errors.ArgumentOverflowError: Python integer 300 out of bounds for int8
    """


class ArgumentTypeError(IngotError, TypeError):
    """A function was given a value of a type that it does not take.

    >>> raise ArgumentTypeError("a path or a store is needed, not int")
    Traceback (most recent call last):
    ingot.errors.ArgumentTypeError: a path or a store is needed, not int
    """


class LockedError(IngotError, BlockingIOError):
    """Another writer holds the lock.

    >>> raise LockedError("'prices.ingot': locked by process 4711")
    Traceback (most recent call last):
    ingot.errors.LockedError: 'prices.ingot': locked by process 4711
    """


class ReadOnlyError(IngotError, PermissionError):
    """A write to something that was opened for reading.

    >>> raise ReadOnlyError("'prices.ingot': opened with mode 'r'")
    Traceback (most recent call last):
    ingot.errors.ReadOnlyError: 'prices.ingot': opened with mode 'r'
    """


class NotFoundError(IngotError, FileNotFoundError):
    """Nothing of that name exists.

    >>> raise NotFoundError("'prices.ingot': no such file")
    Traceback (most recent call last):
    ingot.errors.NotFoundError: 'prices.ingot': no such file
    """


class MemberError(NotFoundError, KeyError):
    """A group has no member of that name.

    >>> raise MemberError("'prices.zarr': no member 'close'")
    Traceback (most recent call last):
    ingot.errors.MemberError: 'prices.zarr': no member 'close'
    """


class ExistsError(IngotError, FileExistsError):
    """Something of that name exists already.

    >>> raise ExistsError("'prices.ingot': a zarr2 dataset is there already")
    Traceback (most recent call last):
    ingot.errors.ExistsError: 'prices.ingot': a zarr2 dataset is there already
    """


class RemoteError(IngotError, OSError):
    """A store that is reached by a network did not answer, or answered wrongly.

    >>> raise RemoteError("s3://data/prices: key 'c/0': 503 SlowDown")
    Traceback (most recent call last):
    ingot.errors.RemoteError: s3://data/prices: key 'c/0': 503 SlowDown
    """


class AccessError(RemoteError, PermissionError):
    """A store that is reached by a network refuses access, or does not know the credentials.

    >>> raise AccessError("s3://data/prices: key 'c/0': 403 AccessDenied")
    Traceback (most recent call last):
    ingot.errors.AccessError: s3://data/prices: key 'c/0': 403 AccessDenied
    """


class SelectionError(IngotError, IndexError):
    """The selection does not fit the shape of the data.

    >>> raise SelectionError("items 5:12 of a chunk that holds 10")
    Traceback (most recent call last):
    ingot.errors.SelectionError: items 5:12 of a chunk that holds 10
    """


class AxisError(SelectionError, ValueError):
    """The array has no axis of that number; as NumPy's, it is a `ValueError` and an `IndexError`.

    >>> raise AxisError("axis 4 is out of bounds for array of dimension 2")
    Traceback (most recent call last):
    ingot.errors.AxisError: axis 4 is out of bounds for array of dimension 2
    """


class ColumnError(SelectionError, KeyError):
    """The table has no column of that name.

    >>> raise ColumnError("there is no column 'prize'; there is day, price")
    Traceback (most recent call last):
    ingot.errors.ColumnError: there is no column 'prize'; there is day, price
    """

    # A KeyError prints the repr of its argument, which is meant to be a key.
    __str__ = Exception.__str__


class UnknownNameError(IngotError, AttributeError):
    """A dataset or the package has no attribute of that name; the message may say what has.

    >>> raise UnknownNameError("ingot.Array has no 'compressor'; use codec")
    Traceback (most recent call last):
    ingot.errors.UnknownNameError: ingot.Array has no 'compressor'; use codec
    """


class KernelError(IngotError, ImportError):
    """The compute kernel that was asked for is absent or was built for another version.

    >>> raise KernelError("INGOT_KERNEL=native, but the native kernel is not built")
    Traceback (most recent call last):
    ingot.errors.KernelError: INGOT_KERNEL=native, but the native kernel is not built
    """
