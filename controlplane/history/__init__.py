"""The past of the fleet: buckets of observations, stored as roll-ups."""
