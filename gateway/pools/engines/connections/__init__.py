"""Connections on which requests go to engines."""
