"""Chapters on limits: large fleets, full caches, overload and defaults."""
