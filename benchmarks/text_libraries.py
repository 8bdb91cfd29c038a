"""Libraries that store text of any length, behind one interface.

All compress with LZ4. The strings come in the form that each library takes fastest.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import ingot
from benchmarks.packages import installed

__all__ = ["LIBRARIES", "OpenedText", "TextLibrary", "Texts", "find_missing", "remove"]

ITEMS = 4096
"""The items of a chunk, a batch or a pack, where a library has such."""


@dataclass
class Texts:
    """Strings in the forms that libraries take: of pyarrow, of NumPy, and of Python.

    >>> import pyarrow
    >>> Texts(pyarrow.array(["ape", "bee"])).listed
    ['ape', 'bee']
    """

    arrow: Any

    @cached_property
    def listed(self) -> list[str]:
        """The strings as objects of Python."""
        found: list[str] = self.arrow.to_pylist()
        return found

    @cached_property
    def numpy(self) -> NDArray[Any]:
        """The strings as an array of NumPy's strings."""
        return np.array(self.listed, np.dtypes.StringDType())

    def __len__(self) -> int:
        return len(self.arrow)

    @property
    def nbytes(self) -> int:
        """The bytes of all strings, in UTF-8."""
        return sum(len(each.encode()) for each in self.listed)

    def parts(self, length: int) -> "list[Texts]":
        """Return the strings in parts of this length, in all forms."""
        parts = [Texts(self.arrow.slice(at, length)) for at in range(0, len(self), length)]
        for each in parts:
            _ = each.listed, each.numpy
        return parts


class OpenedText(Protocol):
    """Stored text that is open; a method returns False where the library cannot do it."""

    def arrow(self) -> Any:
        """Return all strings as an array of pyarrow."""

    def strings(self) -> Any:
        """Return all strings as an array of NumPy's strings."""

    def items(self, numbers: NDArray[np.int64]) -> Any:
        """Return strings by their numbers, by one call."""

    def item(self, number: int) -> Any:
        """Return one string."""

    def append(self, texts: Texts) -> object:
        """Add strings at the end."""

    def update(self, number: int, text: str) -> object:
        """Exchange one string."""


class TextLibrary(Protocol):
    """A library by name, with the packages that it needs."""

    packages: tuple[str, ...]

    def write(self, texts: Texts, path: Path) -> None:
        """Write strings completely."""

    def open(self, path: Path) -> OpenedText:
        """Open them."""


class Ingot:
    """Variable-length items of Ingot, in one of its formats."""

    packages = ("pyarrow",)

    def __init__(self, format: str) -> None:
        self.format = format
        self.options = ingot.Options(durability="process")

    def write(self, texts: Texts, path: Path) -> None:
        ingot.ragged(texts.arrow, path, format=self.format, options=self.options)

    def open(self, path: Path) -> OpenedText:
        return _Ingot(ingot.open(path, "r+", options=self.options))


class _Ingot:
    def __init__(self, stored: Any) -> None:
        self.stored = stored

    def arrow(self) -> Any:
        return self.stored.to_arrow()

    def strings(self) -> Any:
        return self.stored[:]

    def items(self, numbers: NDArray[np.int64]) -> Any:
        return self.stored[numbers]

    def item(self, number: int) -> Any:
        return self.stored[number]

    def append(self, texts: Texts) -> object:
        self.stored.append(texts.arrow)
        return True

    def update(self, number: int, text: str) -> object:
        self.stored[number] = text
        return True


class Utf8Column:
    """A column of text in a table of python-blosc2."""

    packages = ("blosc2", "pyarrow")

    def write(self, texts: Texts, path: Path) -> None:
        import blosc2
        import pyarrow

        given = pyarrow.table({"text": texts.arrow})
        table = blosc2.CTable.from_arrow(
            given.schema,
            given.to_batches(),
            urlpath=str(path),
            capacity_hint=len(given),
            cparams={"codec": blosc2.Codec.LZ4, "clevel": 5},
        )
        table.close()

    def open(self, path: Path) -> OpenedText:
        import blosc2

        return _Utf8Column(blosc2.CTable.open(str(path), mode="a"))


class _Utf8Column:
    def __init__(self, table: Any) -> None:
        self.table, self.column = table, table["text"]

    def arrow(self) -> Any:
        return self.table.to_arrow()["text"]

    def strings(self) -> Any:
        return self.column[:]

    def items(self, numbers: NDArray[np.int64]) -> Any:
        return self.column[numbers]

    def item(self, number: int) -> Any:
        return self.column[number]

    def append(self, texts: Texts) -> object:
        self.table.extend({"text": texts.listed}, validate=False)
        return True

    def update(self, number: int, text: str) -> object:
        self.column[number] = text
        return True


class BatchArray:
    """Batches of strings, each a chunk of python-blosc2."""

    packages = ("blosc2", "pyarrow")

    def write(self, texts: Texts, path: Path) -> None:
        import blosc2

        made = blosc2.BatchArray(
            urlpath=str(path),
            mode="w",
            contiguous=True,
            cparams={"codec": blosc2.Codec.LZ4, "clevel": 5},
        )
        listed = texts.listed
        made.extend([listed[at : at + ITEMS] for at in range(0, len(listed), ITEMS)])

    def open(self, path: Path) -> OpenedText:
        import blosc2

        return _BatchArray(blosc2.open(str(path), mode="a"))


class _BatchArray:
    def __init__(self, stored: Any) -> None:
        self.stored = stored

    def _all(self) -> list[str]:
        return [text for batch in self.stored for text in batch[:]]

    def arrow(self) -> Any:
        import pyarrow

        return pyarrow.array(self._all())

    def strings(self) -> Any:
        return np.array(self._all(), np.dtypes.StringDType())

    def items(self, numbers: NDArray[np.int64]) -> Any:
        items = self.stored.items
        return [items[number] for number in numbers.tolist()]

    def item(self, number: int) -> Any:
        return self.stored.items[number]

    def append(self, texts: Texts) -> object:
        self.stored.append(texts.listed)
        return True

    def update(self, number: int, text: str) -> object:
        # Batches that were appended come behind those of one length.
        place, within = divmod(number, ITEMS)
        batch = list(self.stored[place][:])
        batch[within] = text
        self.stored[place] = batch
        return True


class Zarr:
    """An array of zarr with the codec vlen-utf8."""

    packages = ("zarr", "pyarrow")

    def write(self, texts: Texts, path: Path) -> None:
        import zarr
        from zarr.codecs import BloscCodec

        made = zarr.create_array(
            store=str(path),
            shape=(len(texts),),
            chunks=(ITEMS,),
            dtype=str,
            compressors=[BloscCodec(cname="lz4", clevel=5, shuffle="noshuffle")],
        )
        made[:] = texts.numpy

    def open(self, path: Path) -> OpenedText:
        import zarr

        return _Zarr(zarr.open_array(str(path), mode="r+"))


class _Zarr:
    def __init__(self, stored: Any) -> None:
        self.stored = stored

    def arrow(self) -> Any:
        import pyarrow

        return pyarrow.array(self.stored[:].astype(object))

    def strings(self) -> Any:
        return self.stored[:]

    def items(self, numbers: NDArray[np.int64]) -> Any:
        return self.stored.vindex[numbers]

    def item(self, number: int) -> Any:
        return self.stored[number]

    def append(self, texts: Texts) -> object:
        self.stored.append(texts.numpy)
        return True

    def update(self, number: int, text: str) -> object:
        self.stored[number] = text
        return True


class Parquet:
    """A column of text in a folder of Parquet files by pyarrow; an append is a file more."""

    packages = ("pyarrow",)

    def write(self, texts: Texts, path: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        path.mkdir()
        table = pyarrow.table({"text": texts.arrow})
        parquet.write_table(table, path / "part-0.parquet", compression="lz4")

    def open(self, path: Path) -> OpenedText:
        return _Parquet(path)


class _Parquet:
    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self.path = path
        self.first = parquet.ParquetFile(path / "part-0.parquet")
        counts = [
            self.first.metadata.row_group(number).num_rows
            for number in range(self.first.num_row_groups)
        ]
        self.ends = np.cumsum(counts)
        self.files = 1

    def arrow(self) -> Any:
        from pyarrow import parquet

        return parquet.read_table(self.path)["text"]

    def strings(self) -> Any:
        return np.array(self.arrow().to_pylist(), np.dtypes.StringDType())

    def items(self, numbers: NDArray[np.int64]) -> Any:
        return self.arrow().take(numbers)

    def item(self, number: int) -> Any:
        group = int(np.searchsorted(self.ends, number, "right"))
        start = int(self.ends[group - 1]) if group else 0
        return self.first.read_row_group(group)["text"][number - start].as_py()

    def append(self, texts: Texts) -> object:
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table({"text": texts.arrow})
        parquet.write_table(table, self.path / f"part-{self.files}.parquet", compression="lz4")
        self.files += 1
        return True

    def update(self, number: int, text: str) -> object:
        return False


LIBRARIES: Mapping[str, TextLibrary] = {
    "ingot varlen": Ingot("varlen"),
    "ingot bcolz": Ingot("bcolz"),
    "ingot blsk": Ingot("blsk"),
    "blosc2 utf8 column": Utf8Column(),
    "blosc2 BatchArray": BatchArray(),
    "zarr vlen-utf8": Zarr(),
    "Parquet": Parquet(),
}


def find_missing(library: TextLibrary) -> str | None:
    """Return the package that a library lacks, if any."""
    return next((f"no {each}" for each in library.packages if not installed(each)), None)


def remove(path: Path) -> None:
    """Remove what is stored."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
