"""Recorded decisions: compressed segment files with a byte budget, and the SQL index over them."""
