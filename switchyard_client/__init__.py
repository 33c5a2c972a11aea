"""Python client of Switchyard's decision API: decide, report, fail open. It needs httpx2 (as openai does) or httpx."""

from switchyard_client.clients import AsyncSwitchyard, Switchyard
from switchyard_client.decisions import RejectedError, Route
from switchyard_client.transports import AsyncSwitchyardTransport, SwitchyardTransport

__all__ = ["AsyncSwitchyard", "AsyncSwitchyardTransport", "RejectedError", "Route", "Switchyard", "SwitchyardTransport"]
