"""What the first start of an installation makes: secrets, an admin, the demo fleet."""
