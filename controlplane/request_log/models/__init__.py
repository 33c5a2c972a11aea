"""Models of the request log: decision index, recordings, and segments."""
