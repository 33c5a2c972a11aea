"""What the first start of an installation creates: secrets, an admin, the demo fleet."""
