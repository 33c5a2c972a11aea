"""Benchmarks of the routing core."""
