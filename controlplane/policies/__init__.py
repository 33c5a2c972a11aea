"""Policies: drafts, approvals, publishing, rollbacks, and scheduled publishes."""
