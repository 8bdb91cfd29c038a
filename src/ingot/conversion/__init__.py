"""Conversion of datasets from any format to any other; `ingot.convert` is its function."""
