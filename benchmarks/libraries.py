"""Every array library by its name, whichever workloads it takes part in.

Knows where they are. Refuses to know anything else about them.
"""

from benchmarks.array_libraries import LIBRARIES, ArrayLibrary
from benchmarks.shard_libraries import SHARD_LIBRARIES

__all__ = ["EVERY"]

EVERY: dict[str, ArrayLibrary] = {**LIBRARIES, **SHARD_LIBRARIES}
"""What a case may name."""
