"""The gateway process, which owns the public port. It needs no Django, so it restarts quickly."""

from __future__ import annotations

import logging.config
import os
import socket
import sys
import time
from pathlib import Path

import msgspec
import uvicorn.lifespan.on
import uvicorn.protocols.websockets.auto  # noqa: F401 - uvicorn would load both only when the server starts

from controlplane.project.processes.child_start import begin
from controlplane.project.processes.gateway_child import VARIABLE, GatewayChild
from gateway.__main__ import GatewayProcess, run
from gateway.base.json_log import logging_settings
from gateway.base.peer_settings import peer_settings
from gateway.base.settings import EngineLimits, GatewaySettings
from gateway.bus.redis_bus import RedisBus
from gateway.server.http.edge import EdgeSettings
from gateway.server.http.pages_relay import PagesRelay
from gateway.server.process.tuning import use_short_slices
from kvstore.keys.keyring import Keyring
from kvstore.transfer.shared_secret import node_access

_FIRST_PROBE_S = 3.0
"""Maximum wait for the first probes. On a busy CPU, engines respond late, and waiting avoids 503 responses."""


_DECODER = msgspec.json.Decoder(GatewayChild)


def main() -> int:
    """Wait for the supervisor's permission, then serve until SIGTERM or SIGINT. Return the exit status."""
    begin()
    use_short_slices()
    # Removed, so that no child of ours inherits the secrets.
    child = _DECODER.decode(os.environ.pop(VARIABLE))
    logging.config.dictConfig(logging_settings(child.log_level))
    # Takes a while, which a standby can spare.
    keyring = Keyring.of(child.fleet_secret.encode(), child.fleet_secret_also.encode(), wall=time.time)
    if not os.read(sys.stdin.fileno(), 1):
        # The supervisor is gone.
        return 0
    return run(
        GatewayProcess(
            state_dir=Path(child.state_dir),
            keyring=keyring,
            bus=RedisBus(child.bus_url, keyring),
            scrape_token=child.scrape_token,
            settings=GatewaySettings(
                engine_bearer=child.engine_bearer,
                kv_access=node_access(os.environ, time.time),
                peers=peer_settings(os.environ),
                decisions_kept_per_s=float(child.decisions_per_s),
                recording=child.recording,
                first_probe_s=_FIRST_PROBE_S,
                stream_comment_s=float(child.stream_comment_s),
                limits=EngineLimits(
                    probe_timeout_s=float(child.probe_timeout_s),
                    hang_limit_s=float(child.hang_limit_s),
                    answer_limit_s=float(child.answer_limit_s),
                ),
            ),
            edge=EdgeSettings(
                allowed_hosts=child.allowed_hosts,
                body_limit=child.body_limit,
                proxy_body_limit=child.proxy_body_limit,
                long_bodies=child.long_bodies,
                cors_origins=child.cors_origins,
            ),
            listener=socket.socket(fileno=child.listener),
            pages=PagesRelay(Path(child.pages_socket)),
            drain_s=float(child.drain_s),
            client_idle_s=child.client_idle_s,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
