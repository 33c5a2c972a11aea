"""Benchmarks of one gateway: its decisions over HTTP, its proxy, its limits."""
