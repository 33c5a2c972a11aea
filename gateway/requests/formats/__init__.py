"""Readers of each API's bodies: prompts, media, limits, usage; one row per endpoint."""
