"""Claims of `advise`, measured."""
