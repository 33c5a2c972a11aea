"""Searches for a better policy by simulation: `manage.py advise`."""
