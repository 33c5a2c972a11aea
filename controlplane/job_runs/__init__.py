"""Runs of all jobs, as operators see them, cancel them and start them again."""
