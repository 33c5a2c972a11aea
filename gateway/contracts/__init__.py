"""Values that cross the bus, and the snapshot: the contracts that the control plane may import."""
