"""Settings that the supervisor passes to the gateway process, without importing the gateway."""

from __future__ import annotations

import msgspec

VARIABLE = "GATEWAY_CHILD"
"""The environment variable that holds a GatewayChild as JSON."""


class GatewayChild(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that the supervisor gives the gateway, which reads no settings of Django's."""

    state_dir: str
    fleet_secret: str
    fleet_secret_also: str
    bus_url: str
    pages_socket: str
    listener: int
    """The descriptor of the public port, which the supervisor keeps open: clients that connect while no gateway runs
    wait.
    """
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
