"""Shadows: what a draft would have decided next to the live policy."""
