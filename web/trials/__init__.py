"""The Trials pages: what-ifs, shadows and canaries."""
