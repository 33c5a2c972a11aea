"""Names of prompt prefixes: chained, salted 64-bit block keys."""
