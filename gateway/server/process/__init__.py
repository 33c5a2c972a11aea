"""A gateway process: the server, its drain and its shutdown."""
