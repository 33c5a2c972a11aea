"""Audits of other routers from their logs: `audit-router`."""
