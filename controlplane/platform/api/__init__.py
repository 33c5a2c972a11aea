"""Shared by all views of the management API: base classes, problems, ETags, lists, authentication, OpenAPI."""
