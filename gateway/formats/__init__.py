"""Readers of the bodies of each API: prompts, media, limits, usage; one row per endpoint."""
