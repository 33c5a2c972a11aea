"""Short forms of `make soak-kv` and `make soak-regions`."""
