"""Recordings: cut from the continuously recorded traffic, or uploaded."""
