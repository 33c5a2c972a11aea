"""Run one gateway without Django or a database: `python -m gateway --state-dir DIR --port P [--redis URL]`.

With --redis (or REDIS_URL), the gateway follows the control plane's snapshots. While Redis is down, it serves from the
last snapshot, which it saves in DIR. Without Redis, the control plane writes `last-known-good.snapshot` into DIR, and
the running gateway loads each newer file.
"""

from __future__ import annotations

import argparse
import logging.config
import os
import socket
import sys
import time
from asyncio import Runner
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn
import uvloop

from gateway.base.engine_api_keys import FLEET_KEY, key_in
from gateway.base.json_log import logging_settings
from gateway.base.peer_settings import TLS as PEER_TLS
from gateway.base.peer_settings import PeerSettingsError, peer_settings
from gateway.base.settings import (
    ANSWER_LIMIT_S,
    CLIENT_IDLE_S,
    FLEET_SECRET,
    FLEET_SECRET_ALSO,
    HANG_LIMIT_S,
    PROBE_TIMEOUT_S,
    PROXY_BODY_LIMIT,
    PROXY_BODY_RANGE,
    EngineLimits,
    GatewaySettings,
)
from gateway.bus.bus_metrics import BusMetrics, ScalingPlans, WakeUpAge
from gateway.bus.follower_bus import FollowerBus
from gateway.bus.redis_bus import RedisBus
from gateway.bus.secret_answers import SecretAnswers
from gateway.pools.engines.engine_tls import EngineTls, EngineTlsError
from gateway.proxy.tracing import genai_metrics_wanted, tracing_wanted
from gateway.server.http.connection_limit import allow_open_files
from gateway.server.http.cors import read_origins
from gateway.server.http.edge import Edge, EdgeSettings
from gateway.server.http.http_protocol import GuardedHttpProtocol
from gateway.server.http.pages_relay import PagesRelay
from gateway.server.process.draining_server import CUT_OFF_S, DrainingServer
from gateway.server.process.shutdown import DRAIN_S, ProcessEnd
from gateway.server.process.tuning import limit_arenas, map_large_blocks, settle_heap
from gateway.standalone import StandaloneGateway
from kvstore.keys.keyring import FLEET, Keyring
from kvstore.transfer.shared_secret import TLS_VARIABLES, NoSecretError, keyring_in, node_access, readable
from kvstore.transfer.shared_secret import VARIABLE as KV_SECRET
from kvstore.transfer.tls import IncompleteTlsError

_DECISIONS, _DRAIN = "HEADWAY_DECISIONS_PER_S", "HEADWAY_DRAIN_S"
_PROBE, _HANG, _ANSWER = "HEADWAY_PROBE_TIMEOUT_S", "HEADWAY_HANG_LIMIT_S", "HEADWAY_ANSWER_LIMIT_S"
_COMMENT, _BODY, _IDLE = "HEADWAY_STREAM_COMMENT_S", "HEADWAY_PROXY_BODY_BYTES", "HEADWAY_CLIENT_IDLE_S"
_CORS = "HEADWAY_CORS_ORIGINS"
_MOST = 999_999
_NUMBERS = {
    _DECISIONS: (50, 0, _MOST),
    _DRAIN: (DRAIN_S, 0, _MOST),
    _PROBE: (PROBE_TIMEOUT_S, 1, _MOST),
    _HANG: (HANG_LIMIT_S, 1, _MOST),
    _ANSWER: (ANSWER_LIMIT_S, 1, _MOST),
    _COMMENT: (0, 0, _MOST),
    _BODY: (PROXY_BODY_LIMIT, *PROXY_BODY_RANGE),
    _IDLE: (CLIENT_IDLE_S, 1, _MOST),
}
"""Setting name → (default, minimum, maximum)."""
_SAYS_WHAT_TO_DO = (NoSecretError, IncompleteTlsError, PeerSettingsError, EngineTlsError)
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """One gateway process: its bus, its listener, and its shutdown."""

    state_dir: Path
    keyring: Keyring = field(repr=False)
    bus: RedisBus | None
    """The shared bus. None: the gateway follows the snapshot file in `state_dir`."""
    name: str = ""
    """This gateway's name on the bus. Empty: host:port."""
    scrape_token: str = field(default="", repr=False)
    settings: GatewaySettings
    edge: EdgeSettings | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    listener: socket.socket | None = None
    """A listening socket to use instead of host and port."""
    pages: PagesRelay | None = None
    drain_s: float = DRAIN_S
    client_idle_s: int = CLIENT_IDLE_S
    """Seconds after which an idle client connection is closed."""


def run(process: GatewayProcess) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status."""
    allow_open_files()
    limit_arenas()
    map_large_blocks()
    listener = process.listener
    port = listener.getsockname()[1] if listener is not None else process.port
    name = (process.name or f"{socket.gethostname()}:{port}").replace("/", "-")
    tracing, genai = tracing_wanted(os.environ), genai_metrics_wanted(os.environ)
    app = StandaloneGateway(
        process.state_dir,
        process.keyring,
        bus=FollowerBus(process.bus, name) if process.bus is not None else None,
        scrape_token=process.scrape_token,
        settings=_named(process.settings, name),
        pages=process.pages,
        on_started=settle_heap,
        tracing=tracing,
        listeners=() if genai is None else (genai,),
    )
    if process.bus is not None:
        BusMetrics(app.registry, process.bus)
        WakeUpAge(app.registry, process.bus)
        ScalingPlans(app.registry, process.bus)
        SecretAnswers(process.bus, "gateway", name, [process.keyring, process.settings.kv_access.keyring], time.time)
    config = uvicorn.Config(
        Edge(app, process.edge, app.count_rejected, fast_path=app.inner_fast_path),
        host=process.host,
        port=process.port,
        http=GuardedHttpProtocol,
        ws_per_message_deflate=False,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=process.client_idle_s,
        timeout_graceful_shutdown=CUT_OFF_S,
        # `main` has configured logging; uvicorn would replace it.
        log_config=None,
        log_level="warning",
    )
    end = ProcessEnd(process.drain_s)
    end.handle_signals()
    sockets = [listener] if listener is not None else None
    with Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(DrainingServer(config, app.drain, end).serve(sockets=sockets))
    for exporter in (tracing, genai):
        if exporter is not None:
            exporter.close()
    return end.status


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM. Return 2 if a setting is missing or wrong."""
    options = _parser().parse_args(arguments)
    level = os.environ.get("HEADWAY_LOG_LEVEL", "INFO")
    if level not in _LEVELS:
        return _reject(f"HEADWAY_LOG_LEVEL={level!r} is not one of {', '.join(_LEVELS)}.")
    try:
        numbers, origins = _whole_numbers(), read_origins(os.environ.get(_CORS, "").split(","), _CORS)
    except ValueError as error:
        return _reject(f"{error}.")
    # An OSError names its file but not the setting, so the setting that is being read is kept here.
    source = f"{FLEET_KEY}_FILE"
    try:
        fleet_key = key_in(FLEET_KEY)
        source = f"{FLEET_SECRET}_FILE"
        keyring = keyring_in(os.environ, (FLEET_SECRET, FLEET_SECRET_ALSO), FLEET, time.time)
        source = f"{KV_SECRET}_FILE or {' or '.join(TLS_VARIABLES)}"
        nodes = readable(node_access(os.environ, time.time))
        source = " or ".join(PEER_TLS)
        peers = peer_settings(os.environ)
        EngineTls.of(os.environ)
    except (OSError, ValueError) as error:
        return _reject(
            str(error) if isinstance(error, _SAYS_WHAT_TO_DO) else f"A file of {source} cannot be read: {error}."
        )
    edge = EdgeSettings(proxy_body_limit=numbers[_BODY], cors_origins=origins)
    recorded = os.environ.get("HEADWAY_RECORDING_BYTES", "").strip() != "0"
    logging.config.dictConfig(logging_settings(level))
    try:
        bus = RedisBus(options.redis, keyring) if options.redis else None
    except ValueError as error:
        return _reject(f"--redis is not a Redis URL ({error}); write redis://host:6379/0.")
    return run(
        GatewayProcess(
            state_dir=options.state_dir,
            keyring=keyring,
            bus=bus,
            name=options.name,
            scrape_token=os.environ.get("HEADWAY_SCRAPE_TOKEN", ""),
            settings=GatewaySettings(
                engine_bearer=fleet_key,
                kv_access=nodes,
                peers=peers,
                decisions_kept_per_s=float(numbers[_DECISIONS]),
                recording=recorded,
                stream_comment_s=float(numbers[_COMMENT]),
                limits=EngineLimits(
                    probe_timeout_s=float(numbers[_PROBE]),
                    hang_limit_s=float(numbers[_HANG]),
                    answer_limit_s=float(numbers[_ANSWER]),
                ),
            ),
            edge=replace(edge, allowed_hosts=tuple(options.allowed_host)) if options.allowed_host else edge,
            host=options.host,
            port=options.port,
            drain_s=float(numbers[_DRAIN]),
            client_idle_s=numbers[_IDLE],
        )
    )


def _whole_numbers() -> dict[str, int]:
    """Return the values of _NUMBERS by name; raise ValueError that names the wrong one."""
    numbers: dict[str, int] = {}
    for name, (default, least, most) in _NUMBERS.items():
        given = os.environ.get(name, "") or str(default)
        if not given.isascii() or not given.isdecimal() or len(given) > 9 or not least <= int(given) <= most:
            raise ValueError(f"{name}={given!r} is not a whole number from {least} to {most}")
        numbers[name] = int(given)
    return numbers


def _named(settings: GatewaySettings, name: str) -> GatewaySettings:
    peers = settings.peers
    return settings if peers is None else replace(settings, peers=replace(peers, name=name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gateway", description=__doc__)
    parser.add_argument("--state-dir", type=Path, default=Path("var"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--allowed-host", action="append", default=None, help="Host header to accept; repeatable")
    parser.add_argument(
        "--redis",
        default=os.environ.get("REDIS_URL", ""),
        metavar="URL",
        help="follow the control plane over this server (default: REDIS_URL, which keeps a password out of `ps`)",
    )
    parser.add_argument("--name", default="", help="this gateway's name on the bus (default: host:port)")
    return parser


def _reject(sentence: str) -> int:
    print(sentence, file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main())
