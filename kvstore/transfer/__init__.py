"""Moves payloads between nodes and engines over TCP."""
