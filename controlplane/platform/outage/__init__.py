"""Services that keep working while the database cannot be written."""
