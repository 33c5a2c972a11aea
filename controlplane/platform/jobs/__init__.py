"""Leases and cooperative stops of jobs."""
