"""What recording costs, and what the stores of an hour take: `python -m bench.decision_records --json OUT`.

CPU: the gateway's app decides and completes requests (24 block hashes, 32 engines) in process, without HTTP. That
is the decision's cost; it appends to three lists for the records. Recording is what comes after: of the decision
records sampling, hindsight, encoding, the bus, segments and index rows; of the traffic, every request of which is
recorded, the rows, the bus and the ring. Once at a full gateway's rate, of whose decisions the default keeps 50 per
second, and once with every decision kept. CPU time of the whole process, medians of rounds.

Store: an hour at 50 requests per second, all kept and each different, stored as fast as they go in; once with
the default budget and once with one that it does not fit into. The same hour of traffic goes through a ring.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from bench.decision_api_server import API_KEY, HASHES, MODEL, _snapshot, follow_events, hash_groups, shared_hashes
from bench.report import Target, write_report
from controlplane.recordings.ring import TrafficRing
from gateway.access.authentication import authenticate
from gateway.app import GatewayApp
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.contracts.stored_decision import TOPIC, StoredDecision, decode_batch
from gateway.contracts.traffic_row import TOPIC as TRAFFIC_TOPIC
from gateway.contracts.traffic_row import TrafficBatch, TrafficRow, encode_batch, rows_in
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.http.request_head import new_id
from gateway.http.sync_fast_path import Admission
from gateway.process.garbage_collection import settle_heap

if TYPE_CHECKING:
    from controlplane.decision_store.keeper import DecisionKeeper

FIRST_PORT = 18490
RATE_PER_S = 2000
"""Requests per second of a gateway that has much to do; what it keeps is bounded by the setting."""
KEPT_PER_S = 50
INTERVALS, ROUNDS = 12, 7
HOUR_RATE, HOUR_S = 50, 3600
SMALL_BUDGET = 64 << 20
RING_BUDGET = 256 << 20
STORED_AT_ONCE = 50
SHRINK_EVERY = 30


class Gate:
    """A gateway in this process that decides at once."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.app = GatewayApp(gateway)
        self.desk: Any = self.app._route_api._desk
        caller = authenticate(f"Bearer {API_KEY}".encode(), gateway, time.time())
        self.admission = Admission(caller, gateway.snapshot)
        self.rng = Random(5)
        self.groups = hash_groups()

    def bodies(self, count: int) -> list[bytes]:
        """Return questions whose prompts share 6, 12 or 24 of their blocks with others."""
        made = []
        for _ in range(count):
            hashes = shared_hashes(self.groups, self.rng)
            asked = {"model": MODEL, "block_hashes": hashes, "prompt_tokens": HASHES * 512, "wait": False}
            made.append(msgspec.json.encode(asked))
        return made

    def decide(self, bodies: list[bytes]) -> None:
        """Decide and complete them, two per engine under way."""
        recent, desk = self.app.recent, self.desk
        for body in bodies:
            name, now = new_id(), time.monotonic()
            self.app._route_api.at_once(self.admission.caller, body, name, now)
            record = recent.get(name)
            if record is not None:
                desk.first_token(record, now + 0.1)
                desk.completed(record, now + 1.0, cached_tokens=record.decision.hit_tokens, output_tokens=200)


async def cost_us(gate: Gate, keeper: DecisionKeeper, ring: TrafficRing, rate: int) -> tuple[float, float, float]:
    """Return the CPU microseconds per request of deciding, of its decision's record and of its traffic's row."""
    from controlplane.decision_store.intake import decoded

    heard: list[bytes] = []
    told: list[bytes] = []
    outbox, per_interval = gate.gateway.decisions, rate // 2
    unsubscribe = [
        gate.gateway._bus.subscribe(TOPIC, lambda _topic, value: heard.append(value)),
        gate.gateway._bus.subscribe(TRAFFIC_TOPIC, lambda _topic, value: told.append(value)),
    ]
    deciding_s = recording_s = traffic_s = 0.0
    for number in range(INTERVALS):
        bodies = gate.bodies(per_interval)
        begin = time.process_time()
        gate.decide(bodies)
        deciding_s += time.process_time() - begin
        # What an interval leaves room for, however fast the intervals follow each other here.
        outbox._room = KEPT_PER_S / 2
        begin = time.process_time()
        await outbox.flush()
        if number % 2:
            keeper.store(decoded(heard))
            heard.clear()
        recording_s += time.process_time() - begin
        begin = time.process_time()
        await gate.gateway.traffic.flush()
        if number % 2:
            if sum(map(rows_in, told)) != 2 * per_interval:
                raise RuntimeError(f"{sum(map(rows_in, told))} of {2 * per_interval} requests were recorded")
            ring.append(told)
            told.clear()
        traffic_s += time.process_time() - begin
    for each in unsubscribe:
        each()
    total = per_interval * INTERVALS / 1e6
    return deciding_s / total, recording_s / total, traffic_s / total


async def recording(keeper: DecisionKeeper, ring: TrafficRing, figures: dict[str, float]) -> list[StoredDecision]:
    """Measure the cost of recording into the figures, and return some real records."""
    health = await asyncio.start_server(_healthy, "127.0.0.1", FIRST_PORT)
    with tempfile.TemporaryDirectory() as state:
        bus = InProcessBus()
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(_snapshot(f"http://127.0.0.1:{FIRST_PORT}")))
        # Nothing else may run while the loop waits for the thread: it would be taken for recording.
        settings = GatewaySettings(
            report_stale_s=7200.0,
            decision_interval_s=3600.0,
            traffic_interval_s=3600.0,
            sample_interval_s=3600.0,
            key_usage_interval_s=3600.0,
            cost_report_interval_s=3600.0,
        )
        gateway = Gateway(bus, fleet_secret=b"benchmark", state_dir=Path(state), settings=settings)
        await gateway.start()
        follow_events(gateway)
        gate, records = Gate(gateway), []
        bus.subscribe(TOPIC, lambda _topic, value: records.extend(decode_batch(value).decisions[: 2000 - len(records)]))
        settle_heap()
        for name, rate in (("sampled", RATE_PER_S), ("all_kept", KEPT_PER_S)):
            rounds = [await cost_us(gate, keeper, ring, rate) for _ in range(ROUNDS + 1)][1:]
            figures[f"decision_us_{name}"] = round(statistics.median(each[0] for each in rounds), 2)
            figures[f"records_us_{name}"] = round(statistics.median(each[1] for each in rounds), 2)
            figures[f"traffic_us_{name}"] = round(statistics.median(each[2] for each in rounds), 2)
            shares = [(each[1] + each[2]) / each[0] for each in rounds]
            figures[f"recording_share_{name}"] = round(statistics.median(shares), 4)
        await gateway.stop()
    health.close()
    return records


def an_hour(keeper: DecisionKeeper, records: list[StoredDecision], budget: int) -> dict[str, float]:
    """Store an hour of different decisions; returns the most that the store took, and the CPU per decision."""
    from django.db import connection

    rng, most, begin = Random(3), 0, time.process_time()
    at, total = time.time() - HOUR_S, HOUR_RATE * HOUR_S
    for number in range(0, total, STORED_AT_ONCE):
        part = [
            _another(records[rng.randrange(len(records))], at + (number + place) / HOUR_RATE)
            for place in range(STORED_AT_ONCE)
        ]
        keeper.store(part)
        if number // STORED_AT_ONCE % SHRINK_EVERY == 0:
            keeper.shrink()
            most = max(most, keeper.usage().total_bytes)
    spent_us = (time.process_time() - begin) / total * 1e6
    keeper.shrink()
    usage = keeper.usage()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT SUM(pgsize) FROM dbstat WHERE name LIKE 'controlplane_decisionindex%' OR name LIKE 'decision_%'"
        )
        index_bytes = int(cursor.fetchone()[0] or 0)
    return {
        "used_mib": round(most / 2**20, 1),
        "budget_mib": round(budget / 2**20, 1),
        "record_bytes": round(usage.segment_bytes / max(1, usage.rows), 1),
        "row_bytes": round(index_bytes / max(1, usage.rows), 1),
        "rows": usage.rows,
        "cpu_us": round(spent_us, 1),
    }


def an_hour_of_traffic(directory: Path) -> dict[str, float]:
    """Record an hour of the traffic that the gateway was given, with a session each; returns what the ring takes."""
    ring, rng, groups = TrafficRing(directory, RING_BUDGET, 1e9), Random(4), hash_groups()
    begin, most = time.time(), 0
    for second in range(HOUR_S):
        rows = []
        for number in range(HOUR_RATE):
            at, session = begin + second + number / HOUR_RATE, uuid.uuid4().hex[:12]
            blocks = tuple(shared_hashes(groups, rng))
            rows.append(
                TrafficRow(at, "default", HASHES * 512, 200, blocks, session, session, 0, "completed", head=blocks)
            )
        ring.append([encode_batch(TrafficBatch("gateway:1", tuple(rows)))])
        if second % SHRINK_EVERY == 0:
            ring.shrink(begin + second)
            most = max(most, ring.size_bytes())
    kept = sum(1 for _ in ring.rows(begin, begin + HOUR_S))
    ring.close()
    return {
        "ring_used_mib": round(most / 2**20, 1),
        "ring_row_bytes": round(ring.size_bytes() / max(1, kept), 1),
        "ring_rows": kept,
    }


def _another(record: StoredDecision, at: float) -> StoredDecision:
    """Return the record of another request like it."""
    decision = msgspec.structs.replace(record.decision, decision_id=str(uuid.uuid4()), decided_s=at % 1e6)
    return msgspec.structs.replace(record, decision=decision, arrived_at=at, session=uuid.uuid4().hex[:12])


async def _healthy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline():
        while (await reader.readline()).strip():
            pass
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    writer.close()


def measure() -> tuple[dict[str, float], dict[str, Target]]:
    """Return figures and targets; Django is set up over an empty database."""
    from django.core.management import call_command

    from controlplane.decision_store.keeper import ROW_BYTES, DecisionKeeper
    from controlplane.decision_store.shelf import SegmentShelf
    from controlplane.models import DecisionIndex

    call_command("migrate", verbosity=0)
    state = Path(os.environ["SWITCHYARD_STATE_DIR"])
    figures: dict[str, float] = {}
    # The loop's thread stores here, which in the program a thread of its own does.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    ring = TrafficRing(state / "cost-ring", 1 << 30, 1e9)
    records = asyncio.run(recording(DecisionKeeper(SegmentShelf(state / "cost", 1 << 30), 1 << 30), ring, figures))
    targets = {"recording_share_sampled": Target(value=figures["recording_share_sampled"], op="<=", target=0.15)}
    for name, budget in (("hour", 1 << 30), ("small", SMALL_BUDGET)):
        DecisionIndex.objects.all().delete()
        hour = an_hour(DecisionKeeper(SegmentShelf(state / name, budget), budget), records, budget)
        figures.update({f"{name}_{key}": value for key, value in hour.items()})
        targets[f"{name}_used_mib"] = Target(value=hour["used_mib"], op="<=", target=hour["budget_mib"])
        targets[f"{name}_row_bytes"] = Target(value=hour["row_bytes"], op="<=", target=ROW_BYTES)
    figures.update(an_hour_of_traffic(state / "ring"))
    targets["ring_used_mib"] = Target(value=figures["ring_used_mib"], op="<=", target=RING_BUDGET / 2**20)
    return figures, targets


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("var/bench/decision_records.json"), metavar="OUT")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.environ["SWITCHYARD_STATE_DIR"] = state
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        os.environ["SWITCHYARD_LOG_LEVEL"] = "ERROR"
        import django

        django.setup()
        figures, targets = measure()
    write_report("decision_records", figures, targets, arguments.json)


if __name__ == "__main__":
    main()
