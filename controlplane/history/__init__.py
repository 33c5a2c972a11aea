"""Fleet history: buckets of observations, stored as roll-ups."""
