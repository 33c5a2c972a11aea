"""Models of notifications."""
