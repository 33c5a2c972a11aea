"""Planners that act on a simulated fleet, and what they may observe of it."""
