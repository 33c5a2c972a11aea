"""Connecting engines: reading what they are, and creating region, pool and engine from it."""
