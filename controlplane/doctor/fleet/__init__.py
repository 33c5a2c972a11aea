"""Checks of the fleet and of the jobs that look after it."""
