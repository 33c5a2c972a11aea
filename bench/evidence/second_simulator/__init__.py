"""A second simulator, from the scheduling study's text alone, which shows the reading of it behind each figure."""
