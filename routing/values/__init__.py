"""Immutable values that enter and leave the routing core: requests, decisions, observations, reasons."""
