"""A pool with a live version and a draft to try, and gateways that report generated results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

from controlplane.platform.actor import program
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version
from controlplane.trials.canary.arm_intake import ArmIntake
from gateway.bus.bus import InProcessBus
from gateway.reports.arm_results import TOPIC, ArmReport, ArmRow
from planning.trials.comparison import ArmSlice

ACTOR = program("test")


def version(policy: Policy, placement: str, **document: object) -> PolicyVersion:
    """Store a draft with this placement."""
    return draft(policy, {"placement": {"name": placement}, **document}, actor=ACTOR)


def live_version(policy: Policy, placement: str = "least_cost", **document: object) -> PolicyVersion:
    """Publish a version with this placement."""
    policy.refresh_from_db()
    before = policy.live_version.number if policy.live_version else None
    return publish_version(version(policy, placement, **document), instead_of=before, actor=ACTOR)


class ArmScene:
    """An intake with a clock set by a test, and its reports."""

    def __init__(self, start_s: float) -> None:
        self.now_s = start_s
        self.bus = InProcessBus()
        self.intake = ArmIntake(self.bus, lambda: self.now_s)

    def clock(self) -> datetime:
        """Return the current time."""
        return datetime.fromtimestamp(self.now_s, UTC)

    def report(self, given: ArmSlice, base: tuple[str, int], tried: tuple[str, int], pool: str = "chat") -> None:
        """Report results of both arms as a gateway does, and advance the clock by two seconds."""
        rows = (ArmRow(pool, *base, given.base), ArmRow(pool, *tried, given.tried))
        self.bus.append(TOPIC, msgspec.msgpack.encode(ArmReport("g", self.now_s, rows)))
        self.now_s += 2.0


@contextmanager
def arm_scene(start: datetime) -> Iterator[ArmScene]:
    """Return a scene whose intake is subscribed at `start`."""
    made = ArmScene(start.timestamp())
    try:
        yield made
    finally:
        made.intake.stop()
