"""The same requests under different placements through real processes: engines report the hits of affinity."""

import pytest

from bench.live.live_fleet import API_KEY, MODEL, live_fleet
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.replay.__main__ import replay
from simulator.replay.replay_options import ReplayOptions
from simulator.replay.replay_summary import ReplaySummary
from simulator.workloads.trace import TraceRow

pytestmark = pytest.mark.processes

BLOCK, SESSIONS, TURNS = 512, 11, 6


def rows() -> list[TraceRow]:
    """Return interleaved conversations that grow by two blocks a turn (eleven: no multiple of the engines)."""
    return [
        TraceRow(
            timestamp=100 * (turn * SESSIONS + session),
            input_length=BLOCK * 2 * (turn + 1),
            output_length=2,
            hash_ids=[1000 * session + block for block in range(2 * (turn + 1))],
        )
        for turn in range(TURNS)
        for session in range(SESSIONS)
    ]


async def run(placement: str, tmp_path_factory: pytest.TempPathFactory) -> ReplaySummary:
    policy = RoutingPolicy(placement=Stage(name=placement))
    with live_fleet(tmp_path_factory.mktemp(placement), policy, engines=4, time_scale=10.0) as fleet:
        # A gateway that lacks CPU rejects requests for a moment; they are sent again.
        options = ReplayOptions(target=fleet.url, model=MODEL, api_key=API_KEY, speed=2.0, retry=20)
        return await replay(rows(), options)


async def test_affinity_has_more_hit_tokens_than_round_robin(tmp_path_factory: pytest.TempPathFactory) -> None:
    summaries = {name: await run(name, tmp_path_factory) for name in ("round_robin", "least_cost")}
    for summary in summaries.values():
        assert (summary.ok, summary.failed, summary.rejected) == (SESSIONS * TURNS, 0, 0)
    base = summaries["round_robin"].cached_tokens
    assert summaries["least_cost"].cached_tokens > 1.5 * base
