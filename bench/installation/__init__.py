"""Benchmarks of whole installations, and soaks."""
