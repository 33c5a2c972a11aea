"""What a simulated engine keeps on its node manager, and loads from there and from others."""
