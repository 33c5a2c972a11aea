"""Settings that the supervisor passes to the gateway process. Does not import the gateway."""

from __future__ import annotations

import msgspec

VARIABLE = "GATEWAY_CHILD"
"""The environment variable with a GatewayChild as JSON."""


class GatewayChild(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters from the supervisor for the gateway, which reads no Django settings."""

    state_dir: str
    fleet_secret: str
    fleet_secret_also: str
    bus_url: str
    pages_socket: str
    listener: int
    """The descriptor of the public port. The supervisor keeps it open, so that clients wait while no gateway runs."""
    scrape_token: str
    engine_bearer: str
    decisions_per_s: int
    recording: bool
    drain_s: int
    probe_timeout_s: int
    hang_limit_s: int
    answer_limit_s: int
    stream_comment_s: int
    allowed_hosts: tuple[str, ...]
    body_limit: int
    proxy_body_limit: int
    client_idle_s: int
    cors_origins: tuple[str, ...]
    long_bodies: tuple[str, ...]
    log_level: str
