"""What all views of the management API share: base classes, problems, ETags, lists, authentication, OpenAPI."""
