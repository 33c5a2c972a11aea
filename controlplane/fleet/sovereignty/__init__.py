"""Sovereignty rules: storage, replacement, and cost."""
