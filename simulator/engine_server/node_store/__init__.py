"""The blocks that a simulated engine stores on its node manager, and loads from there and from others."""
