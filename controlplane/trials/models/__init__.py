"""Models of trials: what-ifs, shadows, canaries, and holdbacks."""
