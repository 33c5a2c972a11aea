"""The Access, Audit, and login pages, and the session records."""
