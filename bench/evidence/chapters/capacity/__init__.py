"""Chapters on how far it goes: large fleets, full caches, overload and defaults."""
