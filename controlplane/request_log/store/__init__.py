"""The request log's one store: segments in the database, by retention class, and the index of their decisions."""
