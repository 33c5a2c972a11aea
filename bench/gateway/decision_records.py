"""Cost and size of decision records: `python -m bench.gateway.decision_records --json OUT`.

CPU: the gateway's app decides and completes requests (24 block hashes, 32 engines) in process, without HTTP,
alternately with and without the recording listener. The run without it measures the cost of a decision. Recording, in
the gateway, is the difference plus the work of each interval: sampling, records, the bus. Storing, in the jobs process,
covers regret, segments, and index rows; `whole` is both. The traffic of every request is recorded. One run has a full
gateway's rate, of whose decisions the default keeps 50 per second; the other keeps every decision; `traffic` keeps
none. CPU time is that of the whole process; figures are medians of pairs of slices and of intervals.

Store: an hour at 50 requests per second, all different and all kept, is stored as fast as possible, once with the
default budget and once with one that is too small. So is the same hour of traffic.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
import uuid
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from bench.gateway.decision_api import healthy
from bench.live.decision_api_server import (
    API_KEY,
    ENGINES,
    HASHES,
    MODEL,
    follow_events,
    hash_groups,
    shared_hashes,
    snapshot,
)
from bench.report import Target, command_line, write_report
from gateway.access.authentication import authenticate
from gateway.app import GatewayApp
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.request_batch import (
    TOPIC,
    decode_batch,
    decode_decisions,
    encode_batch,
    pack_row,
    request_batch,
)
from gateway.contracts.snapshot import encode_snapshot
from gateway.contracts.stored_decision import StoredDecision
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.requests.caller_facts import DecisionCaller
from gateway.server.http.request_head import new_id
from gateway.server.http.sync_fast_path import KnownHead
from gateway.server.process.tuning import settle_heap
from kvstore.keys.keyring import Keyring

_MOMENTS = ("dispatched", "first_token", "handed_over", "left", "ended")
FIRST_PORT = 27010
RATE_PER_S = 2000
"""Requests per second of a busy gateway. The setting limits how many it keeps."""
KEPT_PER_S = 50
INTERVALS, ROUNDS = 12, 7
SLICE = 100
"""Requests decided with or without recording before the modes switch."""
SETTLE_S = 0.05
HOUR_RATE, HOUR_S = 50, 3600
SMALL_BUDGET = 64 << 20
TRAFFIC_BUDGET = 256 << 20
STORED_AT_ONCE = 50
SAMPLES = 2000
"""Real decisions used to generate an hour of different ones."""
SHRINK_EVERY = 30


class Gate:
    """A gateway in this process that decides immediately."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.app = GatewayApp(gateway)
        self.desk = cast(Any, self.app._route_api._lifecycle)
        # Decisions without a pause are the load here, and no reason to reject any.
        self.desk.reject_if_late = lambda *_: None
        self.listeners = self.desk._listeners
        by_moment = (getattr(self.listeners, moment) for moment in _MOMENTS)
        silent = [tuple(call for call in calls if call.__self__ is not gateway.requests) for calls in by_moment]
        self.silent = SimpleNamespace(**dict(zip(_MOMENTS, silent, strict=True)))
        """The request's listeners without the recording one."""
        caller = authenticate(f"Bearer {API_KEY}".encode(), gateway, time.time())
        self.admission = KnownHead((caller,), gateway.snapshot, DecisionCaller(caller, caller))
        self.rng = Random(5)
        self.groups = hash_groups()

    def bodies(self, count: int) -> list[bytes]:
        """Return requests whose prompts share 6, 12 or 24 of their blocks with others."""
        made = []
        for _ in range(count):
            hashes = shared_hashes(self.groups, self.rng)
            asked = {"model": MODEL, "block_hashes": hashes, "prompt_tokens": HASHES * 512, "wait": False}
            made.append(msgspec.json.encode(asked))
        return made

    def decide(self, bodies: list[bytes], *, recorded: bool) -> float:
        """Decide and complete the requests, and return the CPU seconds."""
        recent, desk = self.app.recent, self.desk
        desk._listeners = self.listeners if recorded else self.silent
        begin = time.process_time()
        for body in bodies:
            name, now = new_id(), time.monotonic()
            self.app._route_api.at_once(self.admission, body, name, now)
            record = recent.get(name)
            if record is not None:
                desk.first_token(record, now + 0.1)
                desk.completed(record, now + 1.0, cached_tokens=record.decision.hit_tokens, output_tokens=200)
                if not recorded:
                    # Recording releases the keys; without it the ring does, later, during another slice.
                    record.keys = None
        spent_s = time.process_time() - begin
        for _ in () if recorded else bodies:
            recent._at_once.pop()
        return spent_s


class Costs:
    """CPU seconds per request: of deciding and recording per slice, of flushing per interval, of storing per round."""

    def __init__(self) -> None:
        self.deciding: list[float] = []
        self.recording: list[float] = []
        self.flushing: list[float] = []
        self.storing: list[float] = []

    def figures(self, name: str) -> dict[str, float]:
        """Return the medians in microseconds, and as shares of deciding."""
        # Means of two slices in a row: which mode began alternates, and the first slice finds its caches cold.
        turns = [[(one + two) / 2 for one, two in pairwise(item)] for item in (self.deciding, self.recording)]
        deciding, recording, flushing, storing = (
            statistics.median(turn) * 1e6 for turn in (*turns, self.flushing, self.storing)
        )
        recording += flushing
        return {
            f"decision_us_{name}": round(deciding, 2),
            f"recording_us_{name}": round(recording, 2),
            f"storing_us_{name}": round(storing, 2),
            f"recording_share_{name}": round(recording / deciding, 4),
            f"whole_share_{name}": round((recording + storing) / deciding, 4),
        }


async def spend(gate: Gate, rate: int, kept_per_s: float, costs: Costs, records: list[StoredDecision]) -> None:
    """Decide and record the requests of some intervals, then store them.

    `records` receives the first kept decisions.
    """
    from controlplane.request_log.store.segments import store

    received: list[bytes] = []
    outbox, per_interval, slices = gate.gateway.requests, rate // 2, max(1, rate // 2 // SLICE)
    unsubscribe = gate.gateway._bus.subscribe(TOPIC, lambda _topic, value: received.append(value))
    few = per_interval // slices
    for _ in range(INTERVALS):
        for _ in range(slices):
            # The order alternates, so that neither mode has the better moment.
            first = bool(len(costs.deciding) % 2)
            spent_s = {recorded: gate.decide(gate.bodies(few), recorded=recorded) for recorded in (first, not first)}
            costs.deciding.append(spent_s[False] / few)
            costs.recording.append((spent_s[True] - spent_s[False]) / few)
        # Due probes and the like run now, or their time would count as recording.
        await asyncio.sleep(SETTLE_S)
        # The room of one interval, however fast the intervals follow each other here.
        outbox._kept_per_s, outbox._room = 0.0, kept_per_s / 2
        begin = time.process_time()
        await outbox.flush()
        costs.flushing.append((time.process_time() - begin) / per_interval)
    unsubscribe()
    # Storing runs in another process in the program; here it comes last, so that the gateway's caches stay warm.
    begin = time.process_time()
    requests = store(received).requests
    costs.storing.append((time.process_time() - begin) / requests)
    if requests != per_interval * INTERVALS:
        raise RuntimeError(f"{requests} of {per_interval * INTERVALS} requests were recorded")
    for batch in received if len(records) < SAMPLES else ():
        records += decode_decisions(decode_batch(batch).decisions)


async def recording(figures: dict[str, float]) -> list[StoredDecision]:
    """Measure the cost of recording into the figures, and return some real records."""
    health = await asyncio.start_server(healthy, "127.0.0.1", FIRST_PORT)
    with tempfile.TemporaryDirectory() as state:
        bus = InProcessBus()
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot(f"http://127.0.0.1:{FIRST_PORT}", ENGINES)))
        # Nothing else may run while the loop waits for the thread: its time would count as recording.
        settings = GatewaySettings(
            report_stale_s=7200.0,
            request_interval_s=3600.0,
            sample_interval_s=3600.0,
            key_usage_interval_s=3600.0,
            cost_report_interval_s=3600.0,
        )
        gateway = Gateway(bus, keyring=Keyring.of(b"benchmark"), state_dir=Path(state), settings=settings)
        await gateway.start()
        follow_events(gateway)
        gate, records = Gate(gateway), list[StoredDecision]()
        settle_heap()
        for name, rate, kept_per_s in (
            ("traffic", RATE_PER_S, 0.0),
            ("sampled", RATE_PER_S, KEPT_PER_S),
            ("all_kept", KEPT_PER_S, KEPT_PER_S),
        ):
            costs = Costs()
            for _ in range(ROUNDS):
                await spend(gate, rate, kept_per_s, costs, records)
            figures.update(costs.figures(name))
        await gateway.stop()
    health.close()
    return records


def an_hour(records: list[StoredDecision], budget: int) -> dict[str, float]:
    """Store an hour of different decisions. Return the store's peak size, and the CPU time per decision."""
    from django.db import connection

    from controlplane.request_log.models.decision_index import DecisionIndex
    from controlplane.request_log.models.segment import Retention, Segment
    from controlplane.request_log.store.retention import shrink, used_bytes
    from controlplane.request_log.store.segments import store

    Segment.objects.only("pk").delete()
    rng, most, begin = Random(3), 0, time.process_time()
    at, total = time.time() - HOUR_S, HOUR_RATE * HOUR_S
    for number in range(0, total, STORED_AT_ONCE):
        part = [
            _another(records[rng.randrange(len(records))], at + (number + offset) / HOUR_RATE)
            for offset in range(STORED_AT_ONCE)
        ]
        store([encode_batch(request_batch(uuid.uuid4().hex, (), part))])
        if number // STORED_AT_ONCE % SHRINK_EVERY == 0:
            shrink(Retention.DECISIONS, budget)
            most = max(most, used_bytes(Retention.DECISIONS))
    spent_us = (time.process_time() - begin) / total * 1e6
    shrink(Retention.DECISIONS, budget)
    rows = DecisionIndex.objects.count()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT SUM(pgsize) FROM dbstat WHERE name LIKE 'controlplane_decisionindex%' OR name LIKE 'decision_%'"
        )
        index_bytes = int(cursor.fetchone()[0] or 0)
        cursor.execute("SELECT SUM(LENGTH(data)) FROM controlplane_segment")
        data_bytes = int(cursor.fetchone()[0] or 0)
    return {
        "used_mib": round(most / 2**20, 1),
        "budget_mib": round(budget / 2**20, 1),
        "record_bytes": round(data_bytes / max(1, rows), 1),
        "row_bytes": round(index_bytes / max(1, rows), 1),
        "rows": rows,
        "cpu_us": round(spent_us, 1),
    }


def an_hour_of_traffic() -> dict[str, float]:
    """Record an hour of the gateway's traffic, with a session per request. Return its size and cost."""
    from controlplane.request_log.models.segment import Retention
    from controlplane.request_log.store.retention import shrink, used_bytes
    from controlplane.request_log.store.segments import recorded_traffic, store

    shrink(Retention.TRAFFIC, 0)
    rng, groups = Random(4), hash_groups()
    begin, most = time.time(), 0
    for second in range(HOUR_S):
        rows = []
        for number in range(HOUR_RATE):
            # All timestamps fall within this run, since readers go by when a segment was stored.
            at, session = begin + (second + number / HOUR_RATE) / HOUR_S, uuid.uuid4().hex[:12]
            blocks = tuple(shared_hashes(groups, rng))
            row = (
                at, "default", HASHES * 512, 200, blocks, session, session, 0, "completed", False, 0.1, 1.0, None,
                ENGINES, 1, blocks, "", "", "",
            )  # fmt: skip
            rows.append(pack_row(row))
        store([encode_batch(request_batch(uuid.uuid4().hex, rows, ()))])
        if second % SHRINK_EVERY == 0:
            shrink(Retention.TRAFFIC, TRAFFIC_BUDGET)
            most = max(most, used_bytes(Retention.TRAFFIC))
    kept = sum(1 for _ in recorded_traffic(begin, begin + HOUR_S))
    return {
        "traffic_used_mib": round(most / 2**20, 1),
        "traffic_row_bytes": round(used_bytes(Retention.TRAFFIC) / max(1, kept), 1),
        "traffic_rows": kept,
    }


def _another(record: StoredDecision, at: float) -> StoredDecision:
    """Return a record like this one for another request."""
    decision = msgspec.structs.replace(record.decision, decision_id=str(uuid.uuid4()), decided_s=at % 1e6)
    return msgspec.structs.replace(record, decision=decision, arrived_at=at, session=uuid.uuid4().hex[:12])


def measure() -> tuple[dict[str, float], dict[str, Target]]:
    """Return figures and targets; Django is set up over an empty database."""
    from django.core.management import call_command

    from controlplane.request_log.store.segments import ROW_BYTES

    call_command("migrate", verbosity=0)
    figures: dict[str, float] = {}
    # The loop's thread stores here; the program uses a thread of its own.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    records = asyncio.run(recording(figures))
    targets = {
        f"recording_share_{name}": Target(value=figures[f"recording_share_{name}"], op="<=", target=most)
        for name, most in (("sampled", 0.06), ("all_kept", 0.4))
    }
    for name, budget in (("hour", 1 << 30), ("small", SMALL_BUDGET)):
        hour = an_hour(records, budget)
        figures.update({f"{name}_{key}": value for key, value in hour.items()})
        targets[f"{name}_used_mib"] = Target(value=hour["used_mib"], op="<=", target=hour["budget_mib"])
        targets[f"{name}_row_bytes"] = Target(value=hour["row_bytes"], op="<=", target=ROW_BYTES)
    figures.update(an_hour_of_traffic())
    targets["traffic_used_mib"] = Target(value=figures["traffic_used_mib"], op="<=", target=TRAFFIC_BUDGET / 2**20)
    return figures, targets


def main() -> None:
    """Measure and write the report."""
    parser = command_line("decision_records", __doc__)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.environ["HEADWAY_STATE_DIR"] = state
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.project.settings"
        os.environ["HEADWAY_LOG_LEVEL"] = "ERROR"
        import django

        django.setup()
        figures, targets = measure()
    write_report("decision_records", figures, targets, arguments.json)


if __name__ == "__main__":
    main()
