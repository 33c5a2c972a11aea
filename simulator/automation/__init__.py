"""Planners that change a simulated fleet, and the facts that they can observe."""
