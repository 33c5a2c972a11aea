"""Values that cross the bus, and the snapshot: what the control plane may import."""
