"""Shows which process uses which secret, and what still needs the secret being rotated out."""
