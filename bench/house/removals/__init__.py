"""Removes each part of each requirement's mechanism, and asks whether the requirement's tests notice."""
