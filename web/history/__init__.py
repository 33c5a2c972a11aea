"""The stored past of the fleet, and the Cache locality pages."""
