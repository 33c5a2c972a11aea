"""The only store of the request log: segments in the database by retention class, and the index of decisions."""
