"""Foundations of all features: actors, roles, revisions, audit, idempotency, bus intake."""
