"""The policy document itself: schema, form, text, diff and merge."""
