"""The Fleet page: the heatmap, the engine drawer, and the history."""
