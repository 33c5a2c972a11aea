"""Models of policies: versions, approvals, scheduled publishes."""
