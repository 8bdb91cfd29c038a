"""A table as a dataset of pyarrow: DuckDB and others ask it for columns and for rows that match.

Filters of pyarrow become expressions of ours, so that zone maps and the kernel skip what cannot
match. An expression never drops a row that the filter keeps; pyarrow applies the filter itself to
the rows that are left, so that its answer is exact whatever could be translated.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from ingot.errors import IngotError, UnsupportedError
from ingot.interop import arrow
from ingot.interop.arrow import Columns, ColumnType
from ingot.logical_types import CategoryType, LogicalKind, ZonedType
from ingot.query.expr import (
    Among,
    Call,
    Column,
    Combine,
    Compare,
    Expression,
    Literal,
    Unary,
    Value,
)
from ingot.ragged_array import BYTES, UTF8, ItemKind

__all__ = ["BatchSource", "Node", "compared", "dataset", "literal", "translated"]

Layout: TypeAlias = Mapping[str, ColumnType]


class BatchSource(Protocol):
    """What a dataset reads: columns by name, in the rows that can match an expression."""

    def layout(self) -> Layout:
        """Return the types of the columns."""
        ...

    def read_batches(
        self, names: Sequence[str], expression: Expression | None, *, batch_rows: int
    ) -> Iterator[Columns]:
        """Yield the values of columns in all rows that match, and perhaps in others."""
        ...


def dataset(source: BatchSource) -> Any:
    """Return a dataset of pyarrow that reads a source.

    >>> import ingot
    >>> data = ingot.table({"a": [1, 2, 3], "b": [1.5, 2.5, 3.5]}).dataset()
    >>> import pyarrow.compute as pc
    >>> data.to_table(columns=["b"], filter=pc.field("a") > 1)["b"].to_pylist()
    [2.5, 3.5]
    """
    return _dataset_class()(source)


# The class is made on first use, since its base is pyarrow's.
@cache
def _dataset_class() -> Any:
    pyarrow, datasets, files = arrow.dataset_modules()

    class Unread(files.FileSystemHandler):  # type: ignore[misc, name-defined]
        """A file system without files: pyarrow's own code must not read a table by itself."""

        def open_input_file(self, path: str) -> Any:
            raise UnsupportedError("a table of Ingot is read by its own scanner")

        def _refuse(self, *arguments: object, **named: object) -> Any:
            raise UnsupportedError("a table of Ingot is no file of pyarrow")

        get_type_name = lambda self: "ingot"  # noqa: E731
        normalize_path = lambda self, path: path  # noqa: E731
        open_input_stream = open_input_file
        get_file_info = get_file_info_selector = create_dir = delete_dir = _refuse
        delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse
        open_output_stream = open_append_stream = _refuse

    class TableDataset(datasets.FileSystemDataset):  # type: ignore[misc, name-defined]
        """A table of Ingot, read through `scanner`, with columns and filters pushed down."""

        def __init__(self, source: BatchSource) -> None:
            schema = arrow.schema(source.layout())
            format = datasets.IpcFileFormat()
            nowhere = files.PyFileSystem(Unread())
            # Code of pyarrow that does not ask the scanner meets this file, and raises.
            fragment = format.make_fragment("table", nowhere)
            super().__init__([fragment], schema, format, nowhere)
            self._source = source

        def scanner(
            self,
            columns: Any = None,
            filter: Any = None,
            batch_size: int = arrow.BATCH_ROWS,
            **others: Any,
        ) -> Any:
            """Return a scanner of some columns, in the rows that a filter keeps."""
            names, expression = _asked(pyarrow, self._source.layout(), columns, filter)
            own = arrow.schema({name: self._source.layout()[name] for name in names})
            rows = self._source.read_batches(names, expression, batch_rows=batch_size)
            batches = arrow.reader(own, (arrow.batch(each, own) for each in rows))
            known = ("use_threads", "memory_pool", "batch_readahead", "fragment_readahead")
            kept = {name: value for name, value in others.items() if name in known}
            wanted = list(own.names) if columns is None else columns
            return datasets.Scanner.from_batches(batches, columns=wanted, filter=filter, **kept)

        def _refuse_part(self, *arguments: object, **named: object) -> Any:
            raise UnsupportedError("a table of Ingot: give columns and filters to its scanner")

        get_fragments = filter = replace_schema = sort_by = join = join_asof = _refuse_part
        files = property(lambda self: [])

        def __reduce__(self) -> tuple[Any, ...]:
            raise UnsupportedError("a dataset of pyarrow is not pickled; its table is")

    return TableDataset


def _asked(
    pyarrow: Any, layout: Layout, columns: Any, filter: Any
) -> tuple[tuple[str, ...], Expression | None]:
    """Return the columns that a scan reads, and the expression that its rows match."""
    wanted = layout if columns is None else columns
    try:
        if isinstance(wanted, Mapping) and columns is not None:
            used = {name for each in wanted.values() for name in _field_names(pyarrow, each)}
        else:
            used = set(wanted)
        if filter is None:
            expression = None
        else:
            call = _parsed(pyarrow, filter)
            used |= set(_names(call))
            expression = translated(call, layout)
    except IngotError:
        # Something that pyarrow does not spell: it gets all columns, and all rows.
        return tuple(layout), None
    # Rows of no columns could not be counted.
    return tuple(name for name in layout if name in used) or tuple(layout)[:1], expression


# Filters


class Node(NamedTuple):
    """A node of an expression of pyarrow: a call, a literal, or a field."""

    call: str
    """The name of a function; "" for a literal, "field" for a field."""
    value: Any = None
    """What a literal is, the name of a field, or the options of a function."""
    arguments: tuple["Node", ...] = ()


def translated(
    node: Node, layout: Layout, *, negated: bool = False, nan_largest: bool = False
) -> Expression | None:
    """Return an expression that is true wherever a filter is; None if every row may match.

    Negations move inwards, to the comparisons. A comparison with a null is false for us and null
    for pyarrow, which drops both. With `nan_largest`, NaN is larger than all numbers, and equal to
    itself.

    >>> layout = {"a": (np.dtype("i4"), ())}
    >>> less = Node("less", None, (Node("field", "a"), Node("", 3)))
    >>> from ingot.query.expr import spelled
    >>> spelled(translated(Node("invert", None, (less,)), layout))
    'not (a < 3)'
    """
    function, arguments = node.call.removesuffix("_kleene"), node.arguments
    if function == "invert":
        return translated(arguments[0], layout, negated=not negated, nan_largest=nan_largest)
    if function in ("and", "or"):
        parts = [
            translated(each, layout, negated=negated, nan_largest=nan_largest) for each in arguments
        ]
        if (function == "and") == negated:
            # One of them is enough, so all must be known.
            known = [each for each in parts if each is not None]
            return _joined("or", known) if len(known) == len(parts) else None
        return _joined("and", [each for each in parts if each is not None])
    if function == "if_else" and arguments[2] == Node("", None):
        # Where the condition is false, the result is null, and the row is dropped.
        return translated(arguments[1], layout, negated=negated, nan_largest=nan_largest)
    if function == "is_in":
        return _among(node, layout, negated=negated)
    found = _comparison(function, arguments, layout, negated=negated)
    if nan_largest and isinstance(found, Compare) and isinstance(found.left, Column):
        value = found.right.value if isinstance(found.right, Literal) else None
        if value != value:
            return None
        if found.operator in (">", ">=") and _kind(layout[found.left.name]) == "f":
            return Combine("or", (found, Call("isnan", (found.left,))))
    elif nan_largest and found is not None and _has_nan(arguments):
        return None
    return found


def _has_nan(arguments: tuple[Node, ...]) -> bool:
    return any(each.call == "" and each.value != each.value for each in arguments)


def _joined(word: str, parts: list[Expression]) -> Expression | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Combine(word, tuple(parts))


_OPERATORS: Final = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _comparison(
    function: str, arguments: tuple[Node, ...], layout: Layout, *, negated: bool
) -> Expression | None:
    operator = _OPERATORS.get(function)
    if operator is None or len(arguments) != 2:
        return None
    left, right = arguments
    if left.call == "":
        left, right, operator = right, left, _MIRRORED.get(operator, operator)
    if left.call != "field" or left.value not in layout:
        return None
    if left == right and operator == "!=" and not negated and _kind(layout[left.value]) == "f":
        return Call("isnan", (Column(left.value),))
    if right.call != "":
        return None
    return compared(left.value, operator, right.value, layout[left.value], negated=negated)


def compared(
    name: str, operator: str, value: Any, column: ColumnType, *, negated: bool = False
) -> Expression | None:
    """Return a comparison of a column with a value, or a weaker one; None if there is none.

    pyarrow and polars compare narrow floats as 64-bit floats, where ours compare in the type of the
    column.

    >>> compared("a", ">", 0.1, (np.dtype("f4"), ()))
    Compare(operator='>=', left=Column(name='a'), right=Literal(value=0.1))
    """
    if not _fits(value, column):
        return None
    coded = isinstance(column, LogicalKind) and isinstance(column.type, CategoryType)
    if coded and operator not in ("==", "!="):
        # Libraries do not agree on the order of categories.
        return None
    if _kind(column) == "f" and isinstance(column, tuple) and isinstance(value, int | float):
        with np.errstate(all="ignore"):
            rounded = float(np.array(value, column[0]))
        if rounded != value:
            if negated or operator == "!=":
                return None
            operator = {"<": "<=", ">": ">="}.get(operator, operator)
    found = Compare(operator, Column(name), Literal(value))
    return Unary("not", found) if negated else found


def _among(node: Node, layout: Layout, *, negated: bool) -> Expression | None:
    (field,) = node.arguments
    if field.call != "field" or field.value not in layout or node.value is None:
        return None
    column = layout[field.value]
    values = node.value
    # pyarrow compares the bits of floats: it tells 0.0 from -0.0, and finds NaN.
    if _kind(column) == "f" and (negated or any(each != each for each in values)):
        return None
    if not all(_fits(each, column) for each in values):
        return None
    if _kind(column) == "f" and isinstance(column, tuple):
        values = [each for each in values if float(np.array(each, column[0])) == each]
    found = Among(Column(field.value), tuple(map(Literal, values)))
    return Unary("not", found) if negated else found


def _kind(column: ColumnType) -> str:
    """Return the kind of type of a column that can be compared; "" for others."""
    if isinstance(column, ItemKind):
        return {UTF8: "U", BYTES: "S"}.get(column, "")
    if isinstance(column, LogicalKind):
        if isinstance(column.type, CategoryType):
            return "U" if column.type.is_text else column.type.words.dtype.kind
        return "M" if isinstance(column.type, ZonedType) else ""
    dtype, shape = column
    return "" if shape else dtype.kind


def _fits(value: Value | None, column: ColumnType) -> bool:
    """Return whether both mean the same by a comparison of a column with a value."""
    kind = _kind(column)
    if isinstance(value, bool):
        return kind == "b"
    if isinstance(value, int):
        return kind in ("i", "u", "f") and abs(value) < 2**53 if kind == "f" else kind in ("i", "u")
    if isinstance(value, float):
        # Arrow converts large integers to floats, with fewer digits than they have.
        return kind == "f" or (kind in ("i", "u") and abs(value) < 2**53)
    if isinstance(value, str):
        return kind in ("U", "T")
    if isinstance(value, bytes):
        return kind == "S"
    if isinstance(value, np.datetime64):
        return kind == "M"
    return isinstance(value, np.timedelta64) and kind == "m"


def _names(node: Node) -> Iterator[str]:
    if node.call == "field":
        yield node.value
    for each in node.arguments:
        yield from _names(each)


def _field_names(pyarrow: Any, expression: Any) -> Iterator[str]:
    return _names(_parsed(pyarrow, expression))


class _ArrowSchema(ctypes.Structure):
    """The beginning of a schema in Arrow's C interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _parsed(pyarrow: Any, expression: Any) -> Node:
    """Return an expression of pyarrow as a tree.

    pyarrow has no other way to look into one than its serialized form: a stream of Arrow whose
    metadata are the nodes, in the order of the text, and whose columns are the literals.
    """
    try:
        serialized = expression.__reduce__()[1][0]
        found = pyarrow.ipc.open_file(serialized).read_all()
        waiting = iter(_metadata(found.schema))
        node = _node(next(waiting), waiting, found)
    except (pyarrow.ArrowException, AttributeError, IndexError, ValueError, TypeError) as error:
        raise UnsupportedError(f"a filter of pyarrow that has no spelling: {error}") from None
    except (StopIteration, RecursionError):
        raise UnsupportedError("a filter of pyarrow that ends early, or is too deep") from None
    return node


def _metadata(schema: Any) -> list[tuple[str, str]]:
    """Return the metadata of a schema with all its keys, of which many are equal."""
    capsule = schema.__arrow_c_schema__()
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = _ArrowSchema.from_address(find(capsule, b"arrow_schema")).metadata
    if not address:
        return []

    def number() -> int:
        nonlocal address
        (found,) = np.frombuffer(ctypes.string_at(address, 4), np.int32)
        address += 4
        return int(found)

    def text() -> str:
        nonlocal address
        length = number()
        found = ctypes.string_at(address, length).decode()
        address += length
        return found

    return [(text(), text()) for _ in range(number())]


def _node(own: tuple[str, str], waiting: Iterator[tuple[str, str]], found: Any) -> Node:
    word, text = own
    if word == "literal":
        return Node("", literal(found.column(int(text))[0]))
    if word == "field_ref":
        return Node("field", text)
    if word != "call":
        raise UnsupportedError(f"a filter of pyarrow with {word!r}")
    arguments: list[Node] = []
    options = None
    for each in waiting:
        if each[0] == "end":
            return Node(text, options, tuple(arguments))
        if each[0] == "options":
            options = _value_set(found.column(int(each[1]))[0])
        else:
            arguments.append(_node(each, waiting, found))
    raise UnsupportedError(f"a filter of pyarrow: {text} does not end")


def _value_set(options: Any) -> list[Any] | None:
    """Return the values of `is_in`; None for other options, and where nulls count as values."""
    if "value_set" not in [field.name for field in options.type]:
        return None
    values = [literal(each) for each in options["value_set"].values]
    return None if any(each is None for each in values) else values


def literal(scalar: Any) -> Any:
    """Return the value of a scalar of Arrow; an object that fits no column where there is none.

    >>> import pyarrow
    >>> literal(pyarrow.scalar(5, pyarrow.date32()))
    np.datetime64('1970-01-06')
    """
    if not scalar.is_valid:
        return None
    kind = str(scalar.type)
    if kind.startswith("timestamp"):
        return np.datetime64(scalar.value, scalar.type.unit)
    if kind.startswith("date32"):
        return np.datetime64(scalar.value, "D")
    if kind.startswith("duration"):
        return np.timedelta64(scalar.value, scalar.type.unit)
    found = scalar.as_py()
    return found if isinstance(found, bool | int | float | str | bytes) else ()
