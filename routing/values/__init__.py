"""Frozen values that cross the routing core: requests, decisions, observations, reasons."""
