"""The Experiments pages: what-ifs, shadows and canaries."""
