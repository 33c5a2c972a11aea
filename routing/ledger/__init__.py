"""What the router knows of the fleet: the view, reservations and in-flight work."""
