"""Checks of `manage.py doctor`: one file per question, each answered with findings."""
