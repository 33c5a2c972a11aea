"""Results of each arm's requests are counted, reported to the control plane, and shown in the metrics."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from controlplane.trials.canary.evaluation import _figures
from gateway.contracts.wire import UnreadableMessageError
from gateway.reports.arm_results import TOPIC, ArmReport, ArmRow, decode_arm_report
from planning.trials.arm_window import ArmWindow, together
from routing.policy.policy_document import Stage
from routing.trials.arms import CANARY, ArmEntry
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

ROUTE = "/api/v1/route"
HALF = ArmEntry(arm=CANARY, trial_id="t", share=0.5, policy_version=9, placement=Stage(name="round_robin"))


async def test_each_arm_is_counted_separately_and_reported_once(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, arms=(HALF,)) as gateway:
        received: list[bytes] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _, value: received.append(value))
        arms = set()
        for number in range(20):
            body = {"model": MODEL, "block_hashes": [1, 2], "session_id": f"s{number}"}
            _, answer, _ = await gateway.post(ROUTE, body)
            name = answer["decision_id"]
            _, explained = await gateway.get(f"/api/v1/explain/{name}")
            arms.add(tuple(explained["decision"][name] for name in ("arm", "placement", "policy_version")))
            await gateway.post(f"/api/v1/requests/{name}/first_token")
            await gateway.post(f"/api/v1/requests/{name}/complete", {"cached_tokens": 2, "output_tokens": 3})
        assert arms == {("live", "least_cost", 0), (CANARY, "round_robin", 9)}
        gateway.gateway.arm_results.report()
        gateway.gateway.arm_results.report()
        reported = [row for item in received for row in decode_arm_report(item).rows]
        keys = {(row.arm, row.policy_version) for row in reported}
        assert keys == {("live", 0), (CANARY, 9)}
        rows = {
            key: together([row.window for row in reported if (row.arm, row.policy_version) == key])
            for key in sorted(keys)
        }
        assert sum(window.judged for window in rows.values()) == 20
        assert all(window.answered == window.on_time == window.ended > 0 for window in rows.values())
        assert 'headway_trial_requests_total{arm="canary",outcome="completed",pool="pool"}' in await gateway.metrics()


async def test_nothing_is_counted_without_a_trial(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        received: list[bytes] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _, value: received.append(value))
        await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1, 2]})
        gateway.gateway.arm_results.report()
        assert received == []


def test_late_failed_and_rejected_shares_of_an_arm_are_apart() -> None:
    window = ArmWindow(judged=20, on_time=8, ended=20, failed=4, rejected=5, unanswered=3)
    figures = _figures(window)
    assert (figures.late_share, figures.failed_share, figures.rejected_share) == (4 / 20, 4 / 20, 5 / 20)


@pytest.mark.parametrize("window", [ArmWindow(judged=-1), ArmWindow(on_time=2, judged=1), ArmWindow(ttft={99: 1})])
def test_impossible_figures_are_rejected(window: ArmWindow) -> None:
    report = ArmReport("g", 1.0, (ArmRow("pool", "live", 1, window),))
    with pytest.raises(UnreadableMessageError):
        decode_arm_report(msgspec.msgpack.encode(report))


def test_garbage_is_rejected() -> None:
    with pytest.raises(UnreadableMessageError):
        decode_arm_report(b"\xff\x00")
