"""Models of policies: versions, approvals, and scheduled publishes."""
