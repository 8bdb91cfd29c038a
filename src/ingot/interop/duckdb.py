"""DuckDB: a query in SQL over tables, with columns and filters pushed down to them.

DuckDB is optional, and imported on first use.
"""

from collections.abc import Mapping
from typing import Any

from ingot.errors import SelectionError, UnsupportedError

__all__ = ["query"]


def query(
    text: str, tables: Mapping[str, Any], parameters: Any = None, *, external: bool = False
) -> Any:
    """Return the rows of a query as a table of pyarrow.

    `tables` are the names that the query may use, with what DuckDB can scan. Unless `external` is
    true, the query reaches no file, no network and no variable of the program.

    >>> import pyarrow
    >>> query("select sum(a) as total from t", {"t": pyarrow.table({"a": [1, 2]})}).to_pydict()
    {'total': [Decimal('3')]}
    """
    try:
        import duckdb
    except ImportError:
        raise UnsupportedError("duckdb is not installed: pip install duckdb") from None
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("set python_enable_replacements = false")
        for name, table in tables.items():
            connection.register(name, table)
        if not external:
            connection.execute("set enable_external_access = false")
            connection.execute("set lock_configuration = true")
        try:
            found = connection.sql(text, params=parameters)
            if found is None:
                raise SelectionError("DuckDB: the query returns no rows")
            # The name of the method has changed between versions.
            method = getattr(found, "to_arrow_table", None) or found.fetch_arrow_table
            return method()
        except duckdb.Error as error:
            raise SelectionError(f"DuckDB: {error}") from error
    finally:
        connection.close()
