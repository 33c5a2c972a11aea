"""What all features stand on: actors, roles, revisions, audit, idempotency, bus intake."""
