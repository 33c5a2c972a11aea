"""The past of the fleet: buckets of what was seen, stored as roll-ups."""
