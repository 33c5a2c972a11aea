"""Comparisons with other products, each in a separate virtual environment under var/peers."""
