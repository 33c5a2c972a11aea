"""Running pools: engines, their events, their traffic."""
