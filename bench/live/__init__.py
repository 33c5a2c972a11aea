"""A real fleet or the whole program on loopback, its clients and their histories, for benchmarks of the live path."""
