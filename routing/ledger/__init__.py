"""The router's state of the fleet: the view, reservations, and in-flight work."""
