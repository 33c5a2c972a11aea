"""Several regions: heartbeats between gateways, the choice of a region, and forwarding."""
