"""Replays a day's windows under the live policy, other routers' rules, and earlier policies."""
