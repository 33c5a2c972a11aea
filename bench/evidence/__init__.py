"""Measures the papers' claims in the simulator, and writes docs/evidence.md from the results."""
