"""Shadows: what a draft would have decided beside the live policy."""
