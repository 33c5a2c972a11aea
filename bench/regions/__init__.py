"""Benchmarks of several regions, live and simulated."""
