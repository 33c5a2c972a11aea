"""Size of the rooms, imports between their folders, and violations of the house vocabulary."""
