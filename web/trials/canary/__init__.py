"""The pages of canaries."""
