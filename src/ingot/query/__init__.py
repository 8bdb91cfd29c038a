"""Questions to the rows of a table: parsed, bound to columns, answered block by block."""
