"""Chunks decoded on a device: the kernels in CUDA C++, and the tables that they work on."""
