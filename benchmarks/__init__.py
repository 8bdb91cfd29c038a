"""Benchmarks against other libraries: named workloads, all contenders in one run, ratios.

``python -m benchmarks --help`` lists them; ``./run bench`` does the same in the right environment.
"""
