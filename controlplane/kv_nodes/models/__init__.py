"""Models of node managers."""
