"""Node managers as the gateway sees them: their contents, and the loads that engines are ordered to do."""
