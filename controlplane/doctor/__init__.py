"""Checks of `manage.py doctor`: one file per topic. Each check returns findings."""
