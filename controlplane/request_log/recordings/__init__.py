"""Recordings: cut from the traffic that is always recorded, or uploaded."""
