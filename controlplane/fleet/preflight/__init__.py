"""Preflights: the checks that an engine must pass before it serves."""
