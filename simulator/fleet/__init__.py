"""A fleet of simulated engines under a virtual clock, driven by the production router."""
