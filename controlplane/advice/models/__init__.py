"""Stored proposals and predictions."""
