"""Which hot prefixes get more engines."""
