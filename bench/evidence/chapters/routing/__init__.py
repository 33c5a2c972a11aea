"""Chapters on choosing an engine: goodput, affinity, keys and the rules' knowledge."""
