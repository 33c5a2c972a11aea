"""Measurements on choosing an engine: goodput, affinity, keys and what the rules know."""
