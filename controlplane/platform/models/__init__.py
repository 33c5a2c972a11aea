"""Models shared by all features: audit events, job runs, idempotency records, snapshots, and others."""
