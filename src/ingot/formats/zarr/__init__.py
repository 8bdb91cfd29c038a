"""Zarr, from its first layout to version 3."""
