"""Fits an engine profile to measured prefills and decode steps."""
