"""The decision API: route, feedback, explain, observe."""
