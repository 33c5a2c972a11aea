"""Models of the fleet: regions, pools, engines, and learned costs."""
