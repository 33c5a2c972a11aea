"""The stored past of the fleet, and the Affinity pages."""
