"""Which process uses which secret, and what still needs the one that is rotated out."""
