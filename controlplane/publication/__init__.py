"""The snapshot that gateways serve from: each feature's part, and its publication on the bus."""
