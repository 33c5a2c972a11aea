"""Sovereignty rules: stored and replaced, and their cost."""
