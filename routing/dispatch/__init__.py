"""The stages behind the router: bind, queue, dispatch, migrate."""
