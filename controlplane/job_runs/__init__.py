"""Runs of all jobs, as operators see, cancel, and retry them."""
