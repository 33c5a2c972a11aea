"""Removes each part of each requirement's mechanism, and checks whether the requirement's tests notice."""
