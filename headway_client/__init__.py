"""Python client of Headway's decision API: decides, reports, and fails open.

It needs httpx2 (as openai does) or httpx.
"""

from headway_client.clients import AsyncHeadway, AsyncHeadwayTransport, Headway, HeadwayTransport
from headway_client.decisions import RejectedError, Route

__all__ = ["AsyncHeadway", "AsyncHeadwayTransport", "Headway", "HeadwayTransport", "RejectedError", "Route"]
