"""Queries on the rows of a table: parsed, bound to columns, evaluated block by block."""
