"""Exchange of data with other libraries; each optional package is imported in one module."""

from typing import TYPE_CHECKING

from ingot._lazy import lazy_names

if TYPE_CHECKING:
    from ingot.interop.kerchunk import references

__all__ = ["references"]

__getattr__, __dir__ = lazy_names(__name__, {"references": "ingot.interop.kerchunk"})
