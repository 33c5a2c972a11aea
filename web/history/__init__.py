"""The fleet's stored history, and the Cache locality pages."""
