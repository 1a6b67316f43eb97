"""Benchmarks: ratios against peers and against the limit, each in one run, on the same work."""
