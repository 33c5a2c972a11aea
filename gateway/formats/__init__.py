"""What the bodies of each API mean: prompts, media, limits, usage; one row per endpoint."""
