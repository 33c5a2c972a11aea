"""Shadows: the decisions that a draft would have made next to the live policy."""
