"""Shared code of the management API's views: base classes, problems, ETags, lists, authentication, OpenAPI."""
