"""Display of datasets: small tables and trees, as text and as HTML.

This module only formats what it is given.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
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
    "view_info",
]

# Notebooks centre captions and put cells to the right, for tables of numbers.
_LEFT = 'style="text-align:left;padding-right:1em"'

_ITEM = 'style="text-align:left;padding-right:1em;white-space:nowrap"'

_NUMBER = 'style="text-align:right;padding-right:1em;white-space:nowrap"'

_NUMBERS: Final = ("int", "uint", "float", "complex", "datetime64", "timedelta64")

_LONGEST_ITEM: Final = 20
_LONGEST_ATTRIBUTE: Final = 200
_LONGEST_LINE: Final = 60
_MOST_ATTRIBUTES: Final = 20
_BREAK: Final = "\n"
"""Between the lines of a value."""
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
    summary: str = ""
    """What the dataset is, in a few words."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The same as values, by names that stay; see `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the properties as a dictionary of numbers, texts and lists.

        Items and attributes are as NumPy and the format have them.

        >>> import ingot
        >>> facts = ingot.create(shape=(30, 40), dtype="f8", chunks=(10, 40)).info.to_dict()
        >>> facts["kind"], facts["shape"], facts["dtype"], facts["chunks"], facts["chunk_count"]
        ('array', [30, 40], 'float64', [10, 40], 3)
        """
        return dict(self.facts)

    def __repr__(self) -> str:
        rows = [*self.rows, *((column.name, column.text) for column in self.columns)]
        width = max((len(name) for name, _ in rows), default=0)
        below = "\n" + " " * (width + 4)
        lines = [f"  {name:<{width}}  {value.replace(_BREAK, below)}" for name, value in rows]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th {_LEFT}>{_escaped(name)}</th><td {_LEFT}>"
            f"{_escaped(value).replace(_BREAK, '<br>')}</td></tr>"
            for name, value in self.rows
        )
        caption = f"<caption {_LEFT}>{_escaped(self.title)}</caption>"
        return f"<table>{caption}<tbody>{rows}</tbody></table>{self._grid()}"

    def _grid(self) -> str:
        """Return the first rows as a table of their own, under the names and the types."""
        if not self.columns:
            return ""
        styles = [_NUMBER if column.is_numeric else _ITEM for column in self.columns]
        names = _cells("th", (column.name for column in self.columns), styles)
        kinds = _cells("td", (column.kind for column in self.columns), styles)
        ratios = ""
        if any(column.ratio for column in self.columns):
            ratios = _cells("td", (column.ratio for column in self.columns), styles)
        items = zip(*(column.items for column in self.columns), strict=True)
        rows = "".join(_cells("td", row, styles) for row in items)
        return (
            '<div style="overflow-x:auto"><table>'
            f"<thead>{names}</thead><tbody>{kinds}{ratios}{rows}</tbody></table></div>"
        )


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """The properties of a column of a table, and its first items.

    >>> ColumnInfo("day", "int64", "ratio 8.0", ("1", "2", "…")).text
    'int64, ratio 8.0: 1, 2, …'
    """

    name: str
    kind: str
    ratio: str
    items: tuple[str, ...]

    @property
    def is_numeric(self) -> bool:
        """Whether its items are aligned to the right."""
        return self.kind.startswith(_NUMBERS)

    @property
    def text(self) -> str:
        """All of it but the name, as one line."""
        kind = f"{self.kind}, {self.ratio}" if self.ratio else self.kind
        return f"{kind}: {', '.join(self.items) or 'no rows'}"


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
    shards: tuple[int, ...] | None = None,
    unfinished: bool = False,
    manifest: bool = False,
) -> Info:
    """Return the table of an array; `stored` is None when it was not counted.

    `free` are the bytes of files that hold nothing, `others` the files of other programs. `shards`
    is the shape of one. `unfinished` says that a commit waits in a journal, `manifest` that the
    stored chunks are named.

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
      attrs   units: m
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
    if shards is not None:
        rows["shards"] = str(shards)
    if manifest:
        rows["manifest"] = "names the stored chunks"
    if unfinished:
        rows["commit"] = _UNFINISHED
    rows["attrs"] = _attributes_text(schema.attrs)
    facts = {
        **_place_facts(path, format, "array", mode),
        "shape": list(schema.shape),
        "dtype": str(schema.dtype),
        "chunks": list(schema.chunks),
        "chunk_count": schema.chunk_count,
        "shards": None if shards is None else list(shards),
        "order": schema.order,
        "codec": codec_text(codec),
        "fill": schema.fill,
        "dimension_names": None if schema.dimension_names is None else [*schema.dimension_names],
        **_size_facts(schema.nbytes, stored),
        "dead": None if free is None else free.dead,
        "spare": None if free is None else free.spare,
        "other_files": list(others),
        "manifest": manifest,
        "unfinished": unfinished,
        "attrs": dict(schema.attrs),
    }
    summary = f"{schema.shape} {schema.dtype}"
    return Info("ingot.Array", tuple(rows.items()), summary=summary, facts=facts)


def ragged_info(
    schema: RaggedSchema,
    packs: int,
    format: str,
    path: str | None,
    mode: str,
    stored: int | None,
    dead: int,
    unfinished: bool = False,
) -> Info:
    """Return the table of variable-length items; `stored` is None when it was not counted.

    >>> import ingot
    >>> ingot.ragged(["ape", None], attrs={"units": "m"}, codec="blosc:zstd:5:0").info
    ingot.Ragged
      path    in memory
      format  varlen, mode r+
      items   2 utf8 in 1 pack
      codec   blosc(...) > digest(kind=crc32)
      stored  ...
      attrs   units: m
    """
    rows = {
        "path": path or "in memory",
        "format": f"{format}, mode {mode}",
        "items": f"{schema.length:,} {schema.kind} in {_counted(packs, 'pack')}",
        "codec": codec_text(schema.codec.stages),
    }
    if stored is not None:
        rows["stored"] = size_text(stored)
    if dead:
        rows["dead"] = size_text(dead)
    if unfinished:
        rows["commit"] = _UNFINISHED
    rows["attrs"] = _attributes_text(schema.attrs)
    facts = {
        **_place_facts(path, format, "ragged", mode),
        "length": schema.length,
        "item_kind": str(schema.kind),
        "packs": packs,
        "codec": codec_text(schema.codec.stages),
        "stored": stored,
        "dead": dead,
        "unfinished": unfinished,
        "attrs": dict(schema.attrs),
    }
    summary = f"{_counted(schema.length, 'item')} of {schema.kind}"
    return Info("ingot.Ragged", tuple(rows.items()), summary=summary, facts=facts)


def group_info(
    members: Sequence[str],
    attrs: Mapping[str, Any],
    format: str,
    path: str | None,
    mode: str,
    unfinished: bool = False,
) -> Info:
    """Return the table of a group.

    >>> group_info(("a", "b"), {"title": "ours"}, "zarr2", None, "r")
    ingot.Group
      path     in memory
      format   zarr2, mode r
      members  2
      attrs    title: ours
    """
    rows = {
        "path": path or "in memory",
        "format": f"{format}, mode {mode}",
        "members": str(len(members)),
    }
    if unfinished:
        rows["commit"] = _UNFINISHED
    rows["attrs"] = _attributes_text(attrs)
    facts = {
        **_place_facts(path, format, "group", mode),
        "members": list(members),
        "unfinished": unfinished,
        "attrs": dict(attrs),
    }
    summary = _counted(len(members), "member")
    return Info("ingot.Group", tuple(rows.items()), summary=summary, facts=facts)


def table_info(
    path: str | None,
    format: str,
    count: int,
    schemas: Mapping[str, ArraySchema | RaggedSchema],
    stored: Mapping[str, int],
    first: Mapping[str, NDArray[Any]],
    attrs: Mapping[str, Any],
    free: FreeBytes | None = None,
    unfinished: bool = False,
    unreadable: Mapping[str, str] = MappingProxyType({}),
    meanings: Mapping[str, str] = MappingProxyType({}),
) -> Info:
    """Return the table of a table; `first` has the values of its first rows.

    `free` are the bytes of files that hold nothing, `unreadable` says why the first rows of columns
    are not shown, `meanings` says of columns what their types do not.

    >>> import ingot
    >>> ingot.table({"day": [1, 2, 3], "name": ["x", "yy", "z"]}, codec="blosc:zlib:9").info
    ingot.Table
      path    in memory
      format  bcolz, mode r+
      rows    3
      attrs   none
      stored  ...
      day     int64, ...: 1, 2, 3
      name    utf8, ...: x, yy, z
    """
    rows = {
        "path": path or "in memory",
        "format": format,
        "rows": f"{count:,}",
        "attrs": _attributes_text(attrs),
        "stored": _stored_text(_nbytes(schemas), sum(stored.values())),
    }
    if free is not None:
        rows["free"] = _free_text(free)
    if unfinished:
        rows["commit"] = _UNFINISHED
    if unreadable:
        rows["unreadable"] = "; ".join(unreadable.values())
    columns = tuple(
        ColumnInfo(
            name,
            *_kind_texts(schema, stored[name], meanings.get(name)),
            _listed(first[name], count),
        )
        for name, schema in schemas.items()
    )
    name, _, mode = format.partition(", mode ")
    facts = {
        **_place_facts(path, name, "table", mode),
        "rows": count,
        "columns": [
            {
                "name": each,
                **_column_facts(schema, stored[each]),
                **({"meaning": meanings[each]} if each in meanings else {}),
                "first": first[each],
            }
            for each, schema in schemas.items()
        ],
        **_size_facts(_nbytes(schemas), sum(stored.values())),
        "dead": None if free is None else free.dead,
        "spare": None if free is None else free.spare,
        "unfinished": unfinished,
        **({"unreadable": dict(unreadable)} if unreadable else {}),
        "attrs": dict(attrs),
    }
    summary = f"{_counted(count, 'row')}, {_counted(len(schemas), 'column')}"
    return Info("ingot.Table", tuple(rows.items()), columns, summary, facts)


_UNFINISHED: Final = "a writer died in one; reads see it, and opening with mode r+ finishes it"


def _place_facts(path: str | None, format: str, kind: str, mode: str) -> dict[str, Any]:
    return {"path": path, "format": format, "kind": kind, "mode": mode}


def _size_facts(nbytes: int, stored: int | None) -> dict[str, Any]:
    """Return sizes; `stored` is None where it was not counted, the ratio where there is none."""
    ratio = round(nbytes / stored, 4) if stored and nbytes else None
    return {"nbytes": nbytes, "stored": stored, "ratio": ratio}


def _column_facts(schema: ArraySchema | RaggedSchema, stored: int) -> dict[str, Any]:
    if isinstance(schema, RaggedSchema):
        codec = codec_text(schema.codec.stages)
        return {"dtype": str(schema.kind), "codec": codec, **_size_facts(0, stored)}
    return {
        "dtype": str(schema.dtype),
        "shape": list(schema.shape),
        "chunks": list(schema.chunks),
        "codec": codec_text(schema.codec),
        **_size_facts(schema.nbytes, stored),
    }


def _counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 row", "2 rows"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _attributes_text(attrs: Mapping[str, Any]) -> str:
    """Return attributes with their values: in one line if they are short, else one in each."""
    texts = []
    for name, value in list(attrs.items())[:_MOST_ATTRIBUTES]:
        text = " ".join(_item_text(value).split())
        if len(text) > _LONGEST_ATTRIBUTE:
            text = f"{text[:_LONGEST_ATTRIBUTE]}…"
        texts.append(f"{name}: {text}")
    if len(attrs) > _MOST_ATTRIBUTES:
        texts.append(f"… and {len(attrs) - _MOST_ATTRIBUTES} more")
    line = ", ".join(texts)
    return (line if len(line) <= _LONGEST_LINE else _BREAK.join(texts)) or "none"


def view_info(where: str, count: int, types: Mapping[str, Any], first: Mapping[str, Any]) -> Info:
    """Return the table of a view: its condition, and its first rows.

    >>> import ingot
    >>> view = ingot.table({"a": [1, 2, 3]}).where("a > 1")
    >>> view_info("a > 1", 2, {"a": "int64"}, view.read())
    ingot.View
      where  a > 1
      rows   2
      a      int64: 2, 3
    """
    columns = tuple(
        ColumnInfo(name, str(types[name]), "", _listed(values, count))
        for name, values in first.items()
    )
    return Info("ingot.View", (("where", where), ("rows", f"{count:,}")), columns)


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
    ratio = f", ratio {nbytes / stored:.1f}" if stored and nbytes else ""
    return size_text(stored) + ratio


def _free_text(free: FreeBytes) -> str:
    return f"{size_text(free.dead)} dead, {size_text(free.spare)} spare"


def _kind_texts(
    schema: ArraySchema | RaggedSchema, stored: int, meaning: str | None = None
) -> tuple[str, str]:
    if isinstance(schema, RaggedSchema):
        # How many bytes the items have is known when they are read.
        return str(schema.kind), f"{stored:,} bytes stored" if stored else "nothing stored"
    lengths = f" {list(schema.shape[1:])}" if len(schema.shape) > 1 else ""
    ratio = f"ratio {schema.nbytes / stored:.1f}" if stored else "nothing stored"
    return meaning or f"{schema.dtype}{lengths}", ratio


def _listed(values: NDArray[Any], count: int) -> tuple[str, ...]:
    """Return the first items of a column, each as short as a line allows."""
    texts = [_item_text(value).replace("\n", " ") for value in values]
    shown = [text if len(text) <= _LONGEST_ITEM else f"{text[:_LONGEST_ITEM]}…" for text in texts]
    return (*shown, "…") if len(values) < count else tuple(shown)


def _item_text(value: Any) -> str:
    """Return an item as text; its bytes where NumPy has no text for it: dates without a unit."""
    if value is None or value is np.ma.masked:
        return "null"
    try:
        return str(value)
    except ValueError:
        return f"0x{np.asarray(value).tobytes().hex()}"


def _cells(tag: str, texts: Iterable[str], styles: Sequence[str]) -> str:
    cells = "".join(
        f"<{tag} {style}>{_escaped(text)}</{tag}>"
        for text, style in zip(texts, styles, strict=True)
    )
    return f"<tr>{cells}</tr>"


def _stage_text(stage: Stage) -> str:
    config = stage.config()
    name = config.pop("id")
    parameters = ", ".join(f"{key}={value}" for key, value in config.items())
    return f"{name}({parameters})" if parameters else str(name)


def _escaped(text: str) -> str:
    # All that text outside of attributes needs; importing the module html takes longer.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
