"""Preflights: what an engine must pass before it serves."""
