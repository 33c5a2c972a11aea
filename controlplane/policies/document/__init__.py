"""The policy document: schema, form, text, diff, and merge."""
