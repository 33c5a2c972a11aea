"""Policies: drafts, approvals, publishing, rolling back, and scheduled publishes."""
