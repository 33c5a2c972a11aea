"""A second simulator, written from the scheduling study's text alone, to show the interpretation behind each figure."""
