"""Policies that run next to the live one: canary arms and shadows."""
