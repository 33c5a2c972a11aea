"""The page of objectives."""
