"""Measurements of limits: large fleets, full caches, overload and defaults."""
