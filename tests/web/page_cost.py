"""Prints the CPU time of each console page with many engines: `python -m tests.web.page_cost --engines 1000`.

The last five minutes are only in memory; a day and an hour before them are stored. The limit is 300 ms per page.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace

import django
import msgspec

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
LIMIT_MS = 300.0
ROUNDS = 5
UNSTORED_S = 300
PAGES = (
    "/", "/?range=1h", "/fleet/history?range=5m", "/fleet/history?range=1h", "/fleet/history?range=24h",
    "/fleet/engines/engine-e-02", "/engines", "/engines?engine=engine-e-02", "/engines?q=e-9", "/engines/live",
    "/requests",
    "/policies", "/policies/pool-0", "/access/keys", "/access/people", "/access/sessions", "/access/tenants",
    "/access/you", "/audit", "/jobs", "/cache/store", "/cache/agents",
    "/regions/sovereignty", "/engines/services", "/regions/capacity", "/regions",
    "/advice", "/advice/record", "/usage", "/savings", "/usage/budgets", "/usage/prices",
    "/objectives", "/notifications", "/notifications/rules", "/notifications/channels", "/notifications/routes",
    "/notifications/silences",
    "/automation", "/automation/pool-0", "/automation/pool-0?fragment=1", "/automation/pool-0/timeline?range=1h",
    "/automation/pool-0/timeline?range=24h",
)  # fmt: skip


def remember(engines: int) -> None:
    """Fill the feed with the last five minutes, and the database with the time before."""
    from controlplane.history.collector import FINE_S
    from controlplane.history.rollups import COARSE_S
    from controlplane.history.store import PoolHistoryFacts, write_columns
    from controlplane.platform.bus import get_bus
    from gateway.contracts.fleet_sample import TOPIC
    from tests.web.fake_fleet import FakeFleet
    from web.live.feed import fleet_feed

    feed, fleet, now = fleet_feed(), FakeFleet(engines, 2), time.time()
    for second in range(0, UNSTORED_S, 2):
        sample = fleet.sample_at(float(second), now - UNSTORED_S)
        get_bus().publish(TOPIC, msgspec.msgpack.encode(sample))
    facts = {
        pool.pool_id: PoolHistoryFacts(**{name: getattr(pool, name) for name in PoolHistoryFacts.__struct_fields__})
        for pool in sample.pools
    }
    kept = feed.recent().columns[1:-1]
    for seconds in (FINE_S, COARSE_S):
        newest = int((now - UNSTORED_S) // seconds) - 1
        stored = [replace(kept[number % len(kept)], index=newest - 719 + number) for number in range(720)]
        write_columns(seconds, stored, [], facts)


def measure(address: str) -> tuple[float, float]:
    """Return median and maximum CPU time of a page in milliseconds."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.get(is_superuser=True))
    costs = []
    for _ in range(ROUNDS + 1):
        begin = time.process_time()
        answer = client.get(address)
        costs.append((time.process_time() - begin) * 1000)
        assert answer.status_code == 200, (address, answer.status_code)
    # The first one compiles templates, which a server does once.
    return statistics.median(costs[1:]), max(costs[1:])


def main() -> int:
    """Measure every page; return 1 if one exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=1000)
    engines = parser.parse_args().engines
    os.environ["HEADWAY_STATE_DIR"] = tempfile.mkdtemp()
    django.setup()
    from django.conf import settings
    from django.contrib.auth.models import User

    from tests.web import fake_console

    settings.ALLOWED_HOSTS = ["testserver"]
    fake_console.prepare(argparse.Namespace(engines=engines, pools=2, removed_ago=0))
    User.objects.create_superuser("admin", password="")
    remember(engines)
    over = 0
    for address in PAGES:
        median, highest = measure(address)
        over += median > LIMIT_MS
        sys.stdout.write(f"{address:36}{median:8.1f} ms median {highest:8.1f} ms highest\n")
    return int(over > 0)


if __name__ == "__main__":
    raise SystemExit(main())
