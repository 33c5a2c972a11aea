"""Number of engines in a pool."""
