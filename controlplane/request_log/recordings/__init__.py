"""Recordings: taken from the continuously recorded traffic, or uploaded."""
