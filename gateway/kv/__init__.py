"""Node managers and moves of their blocks."""
