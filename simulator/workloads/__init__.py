"""Seeded generators of request traces with published statistics."""
