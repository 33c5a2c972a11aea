"""Returning sessions, and the tiers that keep their KV caches: `manage.py simulate_sessions`."""
