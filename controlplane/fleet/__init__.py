"""Regions, pools, and engines: registered, changed, drained, and read."""
