"""Services that work even if the database is not writable."""
