"""The engine: plans selections, moves array data and calls the kernel, for every format."""
