"""Contracts that the control plane may import: values on the bus, and the snapshot."""
