"""What goes on while the database cannot be written."""
