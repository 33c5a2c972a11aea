"""Notifications: channels, routes, silences, and the job that sends each change of state at most once."""
