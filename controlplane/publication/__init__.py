"""The snapshot that gateways serve from: the parts of each feature, and its publication on the bus."""
