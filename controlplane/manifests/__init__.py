"""Objects as files: export, diff, and apply, and which fields files manage."""
