"""Reports of a prober that lost its lease are dropped."""

from __future__ import annotations

from gateway.contracts.engine_report import EngineReport
from gateway.pools.engines.report_fence import FORGOTTEN_S, MAX_SHARDS, ReportFence


def report(shard: int, fence: int, at: float = 1.0) -> EngineReport:
    return EngineReport(engine_id="e", at=at, reachable=True, healthy=True, reason="", shard=shard, fence=fence)


def test_an_older_token_of_the_same_shard_is_dropped() -> None:
    fence = ReportFence()
    assert fence.admits(report(0, 3))
    assert fence.admits(report(0, 4))
    assert not fence.admits(report(0, 3))
    assert fence.admits(report(0, 4))


def test_tokens_of_different_shards_are_not_compared() -> None:
    fence = ReportFence()
    assert fence.admits(report(0, 90))
    assert fence.admits(report(1, 2))


def test_a_bounded_number_of_shards_is_remembered() -> None:
    fence = ReportFence()
    for shard in range(MAX_SHARDS + 10):
        assert fence.admits(report(shard, 5))
    assert not fence.admits(report(0, 4))
    assert fence.admits(report(MAX_SHARDS + 1, 4))


def test_a_long_gone_holder_does_not_block_a_new_database() -> None:
    fence = ReportFence()
    assert fence.admits(report(0, 90, at=100.0))
    assert not fence.admits(report(0, 1, at=100.0 + FORGOTTEN_S))
    assert fence.admits(report(0, 1, at=101.0 + FORGOTTEN_S))
    assert fence.admits(report(0, 1, at=102.0 + FORGOTTEN_S))
