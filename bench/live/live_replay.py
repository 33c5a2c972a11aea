"""Replay rows once through a fresh fleet of processes under one placement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.live.live_fleet import API_KEY, MODEL, live_fleet
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.replay.__main__ import replay
from simulator.replay.replay_options import ReplayOptions
from simulator.replay.replay_summary import ReplaySummary
from simulator.workloads.trace import TraceRow

_SLO_S, _LOOKAHEAD_S = 5.0, 0.05


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The engines, and their and the client's speed relative to the trace."""

    engines: int
    speed: float = 1.0
    block_tokens: int = 512
    num_blocks: int = 1953


class Measured(msgspec.Struct, frozen=True):
    """One run: mean seconds to the first token in trace time, and the share of prompt tokens that hit."""

    ttft_mean_s: float
    hit_rate: float


def policy_of(placement: str, order: str = "fifo", *, speed: float = 1.0) -> RoutingPolicy:
    """Return the policy of a placement, with times scaled to a fleet that is `speed` times faster."""
    return RoutingPolicy(
        placement=Stage(name=placement),
        order=Stage(name=order),
        ttft_slo_s=_SLO_S / speed,
        lookahead_s=_LOOKAHEAD_S / speed,
    )


async def replayed(
    rows: Sequence[TraceRow],
    policy: RoutingPolicy,
    fleet: Fleet,
    *,
    qps: float | None = None,
    max_input: int | None = None,
    chat: bool = False,
) -> ReplaySummary:
    """Replay the rows and return the client's summary, in the fleet's seconds."""
    with (
        TemporaryDirectory() as folder,
        live_fleet(
            Path(folder),
            policy,
            engines=fleet.engines,
            time_scale=fleet.speed,
            block_tokens=fleet.block_tokens,
            num_blocks=fleet.num_blocks,
        ) as running,
    ):
        options = ReplayOptions(
            target=running.url,
            model=MODEL,
            api_key=API_KEY,
            speed=fleet.speed,
            qps=qps,
            max_input=max_input,
            chat=chat,
        )
        return await replay(rows, options)


async def live(placement: str, rows: Sequence[TraceRow], fleet: Fleet) -> Measured:
    """Replay the rows under a placement, with times in trace seconds. Raises RuntimeError if a request fails."""
    summary = await replayed(rows, policy_of(placement, speed=fleet.speed), fleet)
    if summary.ok != len(rows) or summary.ttft_mean_s is None or summary.cached_share is None:
        raise RuntimeError(f"{placement}: {summary.ok} of {len(rows)} requests were answered: {summary.errors}")
    return Measured(summary.ttft_mean_s * fleet.speed, summary.cached_share)
