"""Stored incidents and their timelines."""
