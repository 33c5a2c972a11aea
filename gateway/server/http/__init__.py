"""HTTP within limits: the edge, bodies, errors, connections, the synchronous fast path."""
