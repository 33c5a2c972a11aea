"""Measures what the papers claim in the simulator, and writes docs/evidence.md from the results."""
