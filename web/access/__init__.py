"""The Access, Audit and login pages, and the record of sessions."""
