"""Ingot against its peers: named workloads, all contenders in one run, results as ratios.

``python -m benchmarks --help`` lists them; ``./run bench`` does the same in the right environment.
"""
