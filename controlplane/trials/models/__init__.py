"""Models of trials: what-ifs, shadows, canaries, holdbacks."""
