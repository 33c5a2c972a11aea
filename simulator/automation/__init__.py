"""Planners that act on a simulated fleet, and the facts that they may observe."""
