"""Shared by all pages: frame, error pages, form fields, timestamps, static files."""
