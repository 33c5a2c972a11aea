"""Checks of the setup: settings, secrets, database, Redis, the console."""
