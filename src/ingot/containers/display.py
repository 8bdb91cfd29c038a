"""Display of datasets: small tables and trees, as text and as HTML.

This module only formats what it is given.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Stage
from ingot.formats.format import FreeBytes
from ingot.schema import ArraySchema, RaggedSchema

__all__ = [
    "ColumnInfo",
    "Info",
    "Tree",
    "array_info",
    "codec_text",
    "group_info",
    "ragged_info",
    "size_text",
    "table_info",
]

# Notebooks centre captions and put cells to the right, for tables of numbers.
_LEFT = 'style="text-align:left;padding-right:1em"'

_ITEM = 'style="text-align:left;padding-right:1em;white-space:nowrap"'

_LONGEST_ITEM: Final = 20
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True, slots=True, repr=False)
class Info:
    """Names and values, printed as a table.

    >>> Info("Array", (("shape", "(3, 4)"), ("dtype", "int64")))
    Array
      shape  (3, 4)
      dtype  int64
    """

    title: str
    rows: tuple[tuple[str, str], ...]
    columns: tuple["ColumnInfo", ...] = ()

    def __repr__(self) -> str:
        rows = [*self.rows, *((column.name, column.text) for column in self.columns)]
        width = max((len(name) for name, _ in rows), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th {_LEFT}>{_escaped(name)}</th><td {_LEFT}>{_escaped(value)}</td></tr>"
            for name, value in self.rows
        )
        caption = f"<caption {_LEFT}>{_escaped(self.title)}</caption>"
        return f"<table>{caption}<tbody>{rows}</tbody></table>{self._grid()}"

    def _grid(self) -> str:
        """Return the first rows as a table of their own, under the names and the types."""
        if not self.columns:
            return ""
        names = _cells("th", (column.name for column in self.columns))
        kinds = _cells("td", (column.kind for column in self.columns))
        ratios = _cells("td", (column.ratio for column in self.columns))
        items = zip(*(column.items for column in self.columns), strict=True)
        rows = "".join(_cells("td", row) for row in items)
        return (
            '<div style="overflow-x:auto"><table>'
            f"<thead>{names}</thead><tbody>{kinds}{ratios}{rows}</tbody></table></div>"
        )


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """The properties of a column of a table, and its first items.

    >>> ColumnInfo("day", "int64", "8.0 times smaller", ("1", "2", "…")).text
    'int64, 8.0 times smaller: 1, 2, …'
    """

    name: str
    kind: str
    ratio: str
    items: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it but the name, as one line."""
        return f"{self.kind}, {self.ratio}: {', '.join(self.items) or 'no rows'}"


@dataclass(frozen=True, slots=True, repr=False)
class Tree:
    """A name, a text about it, and the members below; printed as a tree.

    >>> Tree("/", below=(Tree("a/", below=(Tree("b", "(3,) int64"),)), Tree("c")), more=True)
    /
    ├── a/
    │   └── b (3,) int64
    ├── c
    └── …
    """

    name: str
    text: str = ""
    below: tuple["Tree", ...] = ()
    more: bool = False
    """Whether there is more below than is shown."""

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return f'<ul style="list-style:none;padding-left:0">{self._item()}</ul>'

    def _lines(self) -> Iterator[str]:
        yield f"{self.name} {self.text}".rstrip()
        branches = [list(branch._lines()) for branch in self.below]
        if self.more:
            branches.append(["…"])
        for number, (first, *rest) in enumerate(branches, 1):
            last = number == len(branches)
            yield ("└── " if last else "├── ") + first
            yield from (("    " if last else "│   ") + line for line in rest)

    def _item(self) -> str:
        label = f"<b>{_escaped(self.name)}</b> {_escaped(self.text)}".rstrip()
        items = "".join(branch._item() for branch in self.below) + "<li>…</li>" * self.more
        if not items:
            return f"<li>{label}</li>"
        inside = f'<ul style="list-style:none;padding-left:1.5em">{items}</ul>'
        return f"<li><details open><summary>{label}</summary>{inside}</details></li>"


def array_info(
    schema: ArraySchema,
    codec: Sequence[Stage],
    format: str,
    path: str | None,
    mode: str,
    stored: int | None,
    free: FreeBytes | None = None,
    others: Sequence[str] = (),
) -> Info:
    """Return the table of an array; `stored` is None when it was not counted.

    `free` are the bytes of files that hold nothing, `others` the files of other programs.

    >>> import ingot
    >>> ingot.create(shape=(30, 40), dtype="f8", codec="zlib:1", attrs={"units": "m"}).info
    ingot.Array
      path    in memory
      format  zarr3, mode r+
      shape   (30, 40)
      dtype   float64
      chunks  (30, 40), 1 in order C
      codec   zlib(level=1) > crc32c(location=end)
      fill    0.0
      nbytes  9.4 KiB (9,600 bytes)
      stored  0 bytes
      attrs   units
    """
    rows = {
        "path": path or "in memory",
        "format": f"{format}, mode {mode}",
        "shape": str(schema.shape),
        "dtype": str(schema.dtype),
        "chunks": f"{schema.chunks}, {schema.chunk_count:,} in order {schema.order}",
        "codec": codec_text(codec),
        "fill": _item_text(schema.fill),
        "nbytes": size_text(schema.nbytes),
    }
    if schema.dimension_names is not None:
        rows["axes"] = ", ".join(
            "unnamed" if n is None else repr(n) for n in schema.dimension_names
        )
    if stored is not None:
        rows["stored"] = _stored_text(schema.nbytes, stored)
    if free is not None:
        rows["free"] = _free_text(free)
    if others:
        rows["files"] = ", ".join(others)
    rows["attrs"] = ", ".join(schema.attrs) or "none"
    return Info("ingot.Array", tuple(rows.items()))


def ragged_info(
    schema: RaggedSchema,
    packs: int,
    format: str,
    path: str | None,
    mode: str,
    stored: int | None,
    dead: int,
) -> Info:
    """Return the table of variable-length items; `stored` is None when it was not counted.

    >>> import ingot
    >>> ingot.ragged(["ape", None], attrs={"units": "m"}, codec="blosc:zstd:5:0").info
    ingot.Ragged
      path    in memory
      format  varlen, mode r+
      items   2 utf8 in 1 packs
      codec   blosc(...) > digest(kind=crc32)
      stored  ...
      attrs   units
    """
    rows = {
        "path": path or "in memory",
        "format": f"{format}, mode {mode}",
        "items": f"{schema.length:,} {schema.kind} in {packs:,} packs",
        "codec": codec_text(schema.codec.stages),
    }
    if stored is not None:
        rows["stored"] = size_text(stored)
    if dead:
        rows["dead"] = size_text(dead)
    rows["attrs"] = ", ".join(schema.attrs) or "none"
    return Info("ingot.Ragged", tuple(rows.items()))


def group_info(
    members: Sequence[str], attrs: Mapping[str, Any], format: str, path: str | None, mode: str
) -> Info:
    """Return the table of a group.

    >>> group_info(("a", "b"), {"title": "ours"}, "zarr2", None, "r")
    ingot.Group
      path     in memory
      format   zarr2, mode r
      members  2
      attrs    title
    """
    rows = {
        "path": path or "in memory",
        "format": f"{format}, mode {mode}",
        "members": str(len(members)),
        "attrs": ", ".join(attrs) or "none",
    }
    return Info("ingot.Group", tuple(rows.items()))


def table_info(
    path: str | None,
    format: str,
    count: int,
    schemas: Mapping[str, ArraySchema | RaggedSchema],
    stored: Mapping[str, int],
    first: Mapping[str, NDArray[Any]],
    attrs: Mapping[str, Any],
    free: FreeBytes | None = None,
) -> Info:
    """Return the table of a table; `first` has the values of its first rows.

    `free` are the bytes of files that hold nothing.

    >>> import ingot
    >>> ingot.table({"day": [1, 2, 3], "name": ["x", "yy", "z"]}, codec="blosc:zlib:9").info
    ingot.Table
      path    in memory
      format  bcolz, mode r+
      rows    3
      attrs   none
      stored  ...
      day     int64, ...: 1, 2, 3
      name    <U2, ...: x, yy, z
    """
    rows = {
        "path": path or "in memory",
        "format": format,
        "rows": f"{count:,}",
        "attrs": ", ".join(attrs) or "none",
        "stored": _stored_text(_nbytes(schemas), sum(stored.values())),
    }
    if free is not None:
        rows["free"] = _free_text(free)
    columns = tuple(
        ColumnInfo(name, *_kind_texts(schema, stored[name]), _listed(first[name], count))
        for name, schema in schemas.items()
    )
    return Info("ingot.Table", tuple(rows.items()), columns)


def size_text(nbytes: int) -> str:
    """Return a number of bytes, exact and in a unit that suits it.

    >>> size_text(100), size_text(3 << 20)
    ('100 bytes', '3.0 MiB (3,145,728 bytes)')
    """
    if nbytes < 1024:
        return f"{nbytes} byte" if nbytes == 1 else f"{nbytes} bytes"
    power = min((nbytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{nbytes / 1024**power:.1f} {_UNITS[power - 1]} ({nbytes:,} bytes)"


def codec_text(stages: Sequence[Stage]) -> str:
    """Return the stages of a chain as text.

    >>> from ingot.codecs.codec import parse_spelling
    >>> codec_text(parse_spelling("zlib:9")), codec_text(())
    ('zlib(level=9)', 'none')
    """
    return " > ".join(map(_stage_text, stages)) or "none"


def _nbytes(schemas: Mapping[str, ArraySchema | RaggedSchema]) -> int:
    """Return the bytes of all columns; 0 if those of some are not known without reading them."""
    if any(isinstance(each, RaggedSchema) for each in schemas.values()):
        return 0
    return sum(each.nbytes for each in schemas.values())


def _stored_text(nbytes: int, stored: int) -> str:
    ratio = f", {nbytes / stored:.1f} times smaller" if stored and nbytes else ""
    return size_text(stored) + ratio


def _free_text(free: FreeBytes) -> str:
    return f"{size_text(free.dead)} dead, {size_text(free.spare)} spare"


def _kind_texts(schema: ArraySchema | RaggedSchema, stored: int) -> tuple[str, str]:
    if isinstance(schema, RaggedSchema):
        # How many bytes the items have is known when they are read.
        return str(schema.kind), f"{stored:,} bytes stored" if stored else "nothing stored"
    lengths = f" {list(schema.shape[1:])}" if len(schema.shape) > 1 else ""
    ratio = f"{schema.nbytes / stored:.1f} times smaller" if stored else "nothing stored"
    return f"{schema.dtype}{lengths}", ratio


def _listed(values: NDArray[Any], count: int) -> tuple[str, ...]:
    """Return the first items of a column, each as short as a line allows."""
    texts = [_item_text(value).replace("\n", " ") for value in values]
    shown = [text if len(text) <= _LONGEST_ITEM else f"{text[:_LONGEST_ITEM]}…" for text in texts]
    return (*shown, "…") if len(values) < count else tuple(shown)


def _item_text(value: Any) -> str:
    """Return an item as text; its bytes where NumPy has no text for it: dates without a unit."""
    try:
        return str(value)
    except ValueError:
        return f"0x{np.asarray(value).tobytes().hex()}"


def _cells(tag: str, texts: Iterable[str]) -> str:
    cells = "".join(f"<{tag} {_ITEM}>{_escaped(text)}</{tag}>" for text in texts)
    return f"<tr>{cells}</tr>"


def _stage_text(stage: Stage) -> str:
    config = stage.config()
    name = config.pop("id")
    parameters = ", ".join(f"{key}={value}" for key, value in config.items())
    return f"{name}({parameters})" if parameters else str(name)


def _escaped(text: str) -> str:
    # All that text outside of attributes needs; importing the module html takes longer.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
