"""The program's outside behavior, in files that a change of its structure must leave unchanged."""
