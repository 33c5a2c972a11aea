"""The program's external behavior, in files that a restructuring must leave unchanged."""
