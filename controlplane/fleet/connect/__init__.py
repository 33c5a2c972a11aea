"""Connects engines: reads their properties and creates region, pool, and engine."""
