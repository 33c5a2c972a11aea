"""Objects that the first start of an installation creates: secrets, an admin, and the demo fleet."""
