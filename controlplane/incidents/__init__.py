"""Incidents: detected from live samples by a job, stored with their timeline, and handled by people."""
