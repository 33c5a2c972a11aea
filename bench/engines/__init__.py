"""Benchmarks of engines, real and simulated, and profiles fitted to them."""
