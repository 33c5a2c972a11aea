"""Benchmarks of the simulator."""
