"""The policy editor: drafts, form, unsaved text, merge."""
