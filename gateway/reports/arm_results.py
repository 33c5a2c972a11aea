"""Counts the results of each arm's requests while policies are compared, and reports them to the control plane."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from gateway.bus.bus import Bus
from gateway.contracts.wire import MIB, WireForm
from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.traffic.traffic_window import COMPLETED, FAILED, REJECTED
from planning.trials.arm_window import ArmTally, ArmWindow

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pools.pool.recent_decisions import DecisionRecord

TOPIC = "arm_results"
"""Stream topic; values are encoded ArmReports."""
MAX_ROWS = 10_000


class ArmRow(msgspec.Struct, frozen=True):
    """Results of one arm of one pool since the previous report."""

    pool_id: str
    arm: str
    """live, canary or control."""
    policy_version: int
    window: ArmWindow


class ArmReport(msgspec.Struct, frozen=True):
    """One gateway's counts since its last report."""

    gateway: str
    at: float
    """Unix seconds."""
    rows: tuple[ArmRow, ...]


class ArmResults(RequestListener):
    """Counts results per arm. Mutable: the tallies since the last report, by pool, arm and policy version, changed on
    the loop's thread.
    """

    def __init__(self, bus: Bus, metrics: GatewayMetrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._gateway = f"{socket.gethostname()}:{os.getpid()}"
        self._tallies: dict[tuple[str, str, int], ArmTally] = {}

    def report(self) -> None:
        """Report the counts since the last report. Nothing is sent if there are none."""
        tallies, self._tallies = self._tallies, {}
        if tallies:
            rows = tuple(ArmRow(*key, tally.window()) for key, tally in sorted(tallies.items()))
            self._bus.append(TOPIC, _report.encode(ArmReport(self._gateway, time.time(), rows)))

    @override
    def first_token(self, record: DecisionRecord, now: float) -> None:
        # When it comes, not when the answer ends: a regression should be visible before its answers end.
        tally = self._tally(record) if record.decision.arm and not record.reporter else None
        if tally is not None:
            ttft_s = now - record.arrived_s
            tally.answered(ttft_s, record.decision.prompt_tokens)
            tally.count("judged")
            tally.count("on_time", int(ttft_s <= record.ttft_slo_s))
            self._metrics.arm_ttft.observe(record.decision.pool_id, record.decision.arm, value=ttft_s)

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        outcome = record.outcome
        # A rejection is our own doing, whatever reported the request.
        if not record.decision.arm or (record.reporter and outcome != REJECTED):
            return
        self._metrics.arm_requests.inc(record.decision.pool_id, record.decision.arm, outcome)
        # Cancelled and faulty requests are no evidence about an arm.
        tally = self._tally(record) if outcome in (COMPLETED, FAILED, REJECTED) else None
        if tally is None:
            return
        tally.count("ended")
        if outcome in (FAILED, REJECTED):
            tally.count(outcome)
        # Otherwise it was judged at its first token.
        if record.first_token_s is None:
            tally.count("judged")
            tally.count("on_time", int(record.on_time))
            tally.count("unanswered", int(outcome == FAILED))
        if outcome == COMPLETED and record.cached_tokens is not None:
            tally.count("prompt_tokens", record.decision.prompt_tokens)
            tally.count("cached_tokens", record.cached_tokens)

    def _tally(self, record: DecisionRecord) -> ArmTally | None:
        decision = record.decision
        key = decision.pool_id, decision.arm, decision.policy_version
        tally = self._tallies.get(key)
        if tally is None and len(self._tallies) < MAX_ROWS:
            tally = self._tallies[key] = ArmTally()
        return tally


def _problem(report: ArmReport) -> str:
    if len(report.rows) > MAX_ROWS:
        return f"more than {MAX_ROWS} rows in a report"
    problems = (f"{row.pool_id}.{row.arm}: {problem}" for row in report.rows if (problem := row.window.problem()))
    return next(problems, "")


_report = WireForm(ArmReport, "a report of arms", limit=16 * MIB, problem=_problem)
decode_arm_report = _report.decode
