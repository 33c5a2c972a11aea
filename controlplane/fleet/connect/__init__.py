"""Connecting engines: asking them what they are, and making region, pool and engine of the answers."""
