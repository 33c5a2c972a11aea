"""The stages after the routing decision: bind, queue, dispatch, migrate."""
