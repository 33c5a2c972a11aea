"""The snapshot that gateways serve from: what of every feature it holds, and its publication on the bus."""
