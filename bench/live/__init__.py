"""A real fleet or the whole program on loopback, with clients and their histories, for benchmarks of the live path."""
