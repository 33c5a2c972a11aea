"""The Requests and Recordings pages."""
