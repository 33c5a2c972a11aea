"""The adviser: which policy would be better for recorded traffic, by how much, and for whom not."""
