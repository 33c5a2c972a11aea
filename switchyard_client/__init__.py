"""Python client of Switchyard's decision API: decide, report, fail open. It needs httpx2 (as openai does) or httpx."""

from switchyard_client.clients import AsyncSwitchyard, AsyncSwitchyardTransport, Switchyard, SwitchyardTransport
from switchyard_client.decisions import RejectedError, Route

__all__ = ["AsyncSwitchyard", "AsyncSwitchyardTransport", "RejectedError", "Route", "Switchyard", "SwitchyardTransport"]
