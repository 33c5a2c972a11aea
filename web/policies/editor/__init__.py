"""The policy editor: drafts, form, kept text, merge."""
