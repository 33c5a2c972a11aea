"""Several regions: heartbeats between their gateways, the choice of a region, and forwarding."""
