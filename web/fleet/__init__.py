"""The Fleet page: the heatmap, an engine's drawer, the past."""
