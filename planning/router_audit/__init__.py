"""Audits of other routers: what their logs state, and what their decisions cost."""
