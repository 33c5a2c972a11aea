"""Models of the request log: the index of decisions, recordings."""
