"""Models of no single feature: audit events, job runs, role grants, idempotency records, snapshots."""
