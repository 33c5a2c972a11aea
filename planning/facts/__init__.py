"""Planner inputs for one pool, and metrics derived from them."""
