"""Returning sessions, and the tiers that store their KV caches: `manage.py simulate_sessions`."""
