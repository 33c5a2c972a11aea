"""Engines' KV events, mapped to our block keys."""
