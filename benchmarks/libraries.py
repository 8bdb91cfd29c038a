"""Every array library by its name, for all workloads."""

from benchmarks.array_libraries import LIBRARIES, ArrayLibrary
from benchmarks.shard_libraries import SHARD_LIBRARIES

__all__ = ["EVERY"]

EVERY: dict[str, ArrayLibrary] = {**LIBRARIES, **SHARD_LIBRARIES}
"""The libraries that a case may name."""
