"""Give hot prefixes more engines."""
