"""Runs of all jobs, which operators can view, cancel, and retry."""
