"""Sovereignty rules: stored and replaced, and what they cost."""
