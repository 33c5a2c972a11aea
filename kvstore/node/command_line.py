"""Run a node manager, or ask one to purge a tenant.

The secret that nodes and their clients share comes from HEADWAY_KV_SECRET or the file that HEADWAY_KV_SECRET_FILE
names; an API key for the control plane from HEADWAY_API_KEY. Beyond loopback a node serves over TLS only.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvstore.keys.keyring import Keyring
from kvstore.node.node_manager import NodeManager, NodeSettings
from kvstore.node.registration import is_address
from kvstore.node.write_through import ALL, SSD_POLICIES
from kvstore.tiers.eviction import EVICTIONS
from kvstore.tiers.slot_file import SlotFileInUseError
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import MAX_PAYLOAD_BYTES, Done, Purge
from kvstore.transfer.shared_secret import NoSecretError, kv_keyring, tls_in
from kvstore.transfer.tls import IncompleteTlsError, TlsFiles, is_loopback, tls_files
from kvstore.transfer.transfer_client import TransferClient


class SettingError(ValueError):
    """An option or a variable is missing or invalid. The message states the remedy."""


def main(arguments: Sequence[str], prog: str = "node") -> int:
    """Serve until SIGINT or SIGTERM. Return 2 if a setting is missing or invalid, 1 if the drain timed out."""
    options = parser(prog).parse_args(arguments)
    logging.basicConfig(level="INFO", format="%(levelname)s %(name)s %(message)s")
    try:
        return _purge(options) if options.purge is not None else _serve(settings_of(options))
    except (SettingError, SlotFileInUseError, OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2


def settings_of(options: argparse.Namespace) -> NodeSettings:
    """Return the settings from the options and the environment. Raises SettingError."""
    tls = _tls(options)
    if tls is None and not is_loopback(options.host):
        raise SettingError(f"{options.host} is not loopback: set --tls-certificate, --tls-key, and --tls-authority.")
    if options.register and not is_address(options.register):
        raise SettingError(f"{options.register!r} is not a URL to register at; use http://host:port/path.")
    slot_bytes = options.slot_kib << 10
    if options.slot_kib < 4 or slot_bytes > MAX_PAYLOAD_BYTES:
        raise SettingError("--slot-kib must be from 4 to 65536.")
    dram_bytes, ssd_bytes = options.dram_mib << 20, options.ssd_mib << 20
    if options.disk_reserve_mib is not None and options.disk_reserve_mib < 0:
        raise SettingError("--disk-reserve-mib must be 0 or more.")
    if dram_bytes < slot_bytes:
        raise SettingError("--dram-mib must hold at least one slot.")
    return NodeSettings(
        node_id=options.name or f"{socket.gethostname()}-{options.port}",
        keyring=keyring_of(os.environ),
        catalog=CatalogSettings(
            dram_slots=dram_bytes // slot_bytes,
            ssd_slots=ssd_bytes // slot_bytes,
            slot_bytes=slot_bytes,
            disk_reserve_bytes=None if options.disk_reserve_mib is None else options.disk_reserve_mib << 20,
            tenant_quota_bytes=(dram_bytes + ssd_bytes) * options.tenant_quota_percent // 100,
            pin_quota_bytes=(dram_bytes + ssd_bytes) * options.pin_quota_percent // 100,
            max_age_s=options.max_age_hours * 3600.0,
            eviction=options.eviction,
        ),
        directory=options.directory if options.ssd_mib else None,
        host=options.host,
        port=options.port,
        advertise=options.advertise,
        events_port=options.events_port,
        replay_port=options.replay_port or (options.events_port + 1 if options.events_port else 0),
        metrics_port=options.metrics_port,
        register_url=options.register,
        register_bearer=os.environ.get("HEADWAY_API_KEY", ""),
        tls=tls,
        drain_s=options.drain_s,
        ssd_policy=options.ssd_policy,
        pull_bytes_per_s=options.pull_mib_s * (1 << 20),
    )


def keyring_of(environment: Mapping[str, str]) -> Keyring:
    """Return the shared secrets. Raises SettingError if a secret is missing or weak."""
    try:
        return kv_keyring(environment, time.time)
    except NoSecretError as error:
        raise SettingError(str(error)) from error


def _serve(settings: NodeSettings) -> int:
    manager = NodeManager(settings)
    end = threading.Event()
    for item in (signal.SIGINT, signal.SIGTERM):
        signal.signal(item, lambda *_: end.set())
    manager.start()
    logging.getLogger(__name__).info("node %s serves on %s:%d", settings.node_id, settings.host, manager.port)
    while not end.wait(3600.0):
        pass
    return 0 if manager.stop() else 1


def _purge(options: argparse.Namespace) -> int:
    client = TransferClient(keyring_of(os.environ), time.monotonic, _tls(options))
    try:
        answer = client.call(f"{options.host}:{options.port}", Purge(options.purge))
    except PeerError as error:
        raise SettingError(f"The node does not answer: {error}.") from error
    finally:
        client.close()
    if not isinstance(answer, Done):
        raise SettingError("The node could not overwrite all blocks of the tenant on SSD; check its disk and retry.")
    print(f"Purged blocks: {answer.count}")  # noqa: T201
    return 0


def _tls(options: argparse.Namespace) -> TlsFiles | None:
    files = (options.tls_certificate, options.tls_key, options.tls_authority)
    try:
        return tls_files(files, ("--tls-certificate", "--tls-key", "--tls-authority")) or tls_in(os.environ)
    except IncompleteTlsError as error:
        raise SettingError(str(error)) from error


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=prog, description=__doc__)
    add = made.add_argument
    add("--host", default="127.0.0.1", help="address to serve on")
    add("--port", type=int, default=8470)
    add("--name", default="", help="this node's name (default: host-port)")
    add("--advertise", default="", metavar="HOST", help="host under which others reach this node")
    add("--dram-mib", type=int, default=256, help="size of the DRAM tier, allocated at the start")
    add("--ssd-mib", type=int, default=0, help="size of the SSD tier; 0: none")
    add("--directory", type=Path, default=Path("var/kv"), help="directory of the SSD tier")
    add(
        "--disk-reserve-mib",
        type=int,
        metavar="MIB",
        help="disk space that the SSD tier keeps free for other programs (default: 5 %% of the disk, from 1 to 16 GiB, "
        "at most a fifth)",
    )
    add("--slot-kib", type=int, default=1024, help="maximum block size")
    add("--eviction", choices=sorted(EVICTIONS), default="leaf_lru")
    add(
        "--ssd-policy",
        choices=SSD_POLICIES,
        default=ALL,
        help="blocks that are copied to SSD: all, or those pinned and those that arrive while DRAM is nearly full",
    )
    add("--tenant-quota-percent", type=int, default=100, help="maximum share of both tiers per tenant")
    add("--pin-quota-percent", type=int, default=10, help="maximum share of both tiers that a tenant can pin")
    add("--max-age-hours", type=float, default=24.0, help="maximum age of a block")
    add("--events-port", type=int, default=0, help="port for KV events; replays use the next port")
    add("--replay-port", type=int, default=0, help="port for replays of KV events")
    add("--metrics-port", type=int, default=0, help="port for /metrics")
    add("--register", default="", metavar="URL", help="control plane to register at")
    add("--tls-certificate", type=Path)
    add("--tls-key", type=Path)
    add("--tls-authority", type=Path)
    add("--drain-s", type=float, default=30.0, help="maximum seconds for transfers to finish after SIGTERM")
    add(
        "--pull-mib-s",
        type=float,
        default=0.0,
        help="maximum MiB/s of prefetches and replicas; 0: no limit",
    )
    add("--purge", metavar="TENANT", help="make the running node delete and overwrite a tenant's blocks")
    return made
