"""Measure the papers' claims in the simulator, and write docs/evidence.md from the results."""
