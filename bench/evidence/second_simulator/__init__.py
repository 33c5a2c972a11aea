"""A second simulator, from the scheduling study's text alone, to tell which reading of it gives which figure."""
