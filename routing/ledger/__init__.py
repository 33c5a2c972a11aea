"""The router's account of the fleet: the view, reservations, and in-flight work."""
