"""The measurements behind docs/evidence.md; each returns a Result."""
