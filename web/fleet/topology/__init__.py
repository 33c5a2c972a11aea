"""The Engines page: regions, pools, and engines with their forms."""
