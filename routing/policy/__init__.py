"""The routing half of a policy document: settings with unit, range, and description."""
