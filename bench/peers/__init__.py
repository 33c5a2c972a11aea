"""Comparisons with other products, each in a virtual environment of its own under var/peers."""
