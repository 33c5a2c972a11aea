"""The Decisions and Recordings pages."""
