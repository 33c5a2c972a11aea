"""The Topology page: regions, pools, and engines with their forms."""
