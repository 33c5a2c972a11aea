"""The Access, Audit and login pages, and what is noted of sessions."""
