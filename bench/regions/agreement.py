"""Live regions against the simulated ones: `python -m bench.regions.agreement --json OUT`.

The same open-loop arrivals go to three live gateways with simulated engines, each a process, and to
simulator/regions. Policy, engine profile, engine model, block size, and round trips are the same on both sides. The
share of requests served in another region, the hit rate, and the median TTFT must agree.

When gateways probe and call each other decides races, and a prefix stays where its first request went. These times
are random, so the simulated figures are means over PHASES runs, and their range is reported.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec

from bench.live.process_cpu import cpu_s
from bench.live.region_clients import RegionClients
from bench.live.region_fleet import REGIONS, region_fleet
from bench.report import Target, command_line, write_report
from kvstore.keys.block_keys import token_block_keys
from routing.policy.policy_document import RoutingPolicy
from routing.regions.sovereignty import ALLOW_ALL
from simulator.engine_models.engine_profile import PROFILES, EngineProfile
from simulator.engine_models.prefill_handoff import PrefillHandoffEngine
from simulator.engine_server import command_line as engine_server
from simulator.percentile import percentile
from simulator.regions.hosted_engine import HostedEngine
from simulator.regions.network import RegionNetwork, links
from simulator.regions.policies import POLICIES
from simulator.regions.region_request import BLOCK_TOKENS, Prompt, PromptSegment, RegionRequest
from simulator.regions.simulated_gateway import SimulatedGateway
from simulator.virtual_clock import VirtualClock

ENGINES = 2
"""Engines per region."""
PHASES = 5
REQUESTS, SECONDS = 2000, 380.0
OUTPUT_TOKENS = 6
KV_TOKENS = 30_000
RATES = {"us": 0.74, "eu": 0.15, "asia": 0.11}
"""Shares of the requests by the region of their clients: us has more than its engines can serve at peaks."""
_HEADS, _WORLD_HEADS = 6, 3
_HEADS_S = 20.0
"""Seconds after which new beginnings replace all. With few beginnings, the first engines of each would decide all."""
_HEAD_TOKENS, _OWN_TOKENS = 512, (300, 800)
_WORLD_SHARE, _FOLLOW_SHARE = 0.2, 0.3
_SETTLED_S = 10.0
"""A prompt continues one that arrived at least this long before."""
_DRAIN_S = 60.0
_OPTIONS = ["--profile", str(PROFILES / "l4-8b.json"), "--num-blocks", str(KV_TOKENS // BLOCK_TOKENS)]


class Arrival(msgspec.Struct, frozen=True):
    """A request of a region's client, as token ids."""

    at_s: float
    region: str
    prompt: tuple[int, ...]


class Served(msgspec.Struct, frozen=True):
    """An answered request."""

    region: str
    prompt_tokens: int
    cached_tokens: int
    crossed: bool
    """Whether another region's engine served it."""
    ttft_s: float


def arrivals(count: int, seconds: float, seed: int) -> list[Arrival]:
    """Return Poisson arrivals whose prompts share beginnings within a region or in all regions, or continue others."""
    rng = random.Random(seed)
    heads: dict[tuple[str, int, int], tuple[int, ...]] = {}
    made: dict[str, list[Arrival]] = {name: [] for name in REGIONS}
    times = sorted(rng.uniform(0.0, seconds) for _ in range(count))
    for at_s in times:
        region = rng.choices(list(RATES), list(RATES.values()))[0]
        earlier, own = made[region], _tokens(rng, rng.randint(*_OWN_TOKENS))
        known = bisect_left(earlier, at_s - _SETTLED_S, key=lambda arrival: arrival.at_s)
        if known and rng.random() < _FOLLOW_SHARE:
            start = earlier[rng.randrange(max(0, known - 40), known)].prompt[: 3 * _HEAD_TOKENS]
        else:
            owner, kinds = ("", _WORLD_HEADS) if rng.random() < _WORLD_SHARE else (region, _HEADS)
            name = owner, int(at_s // _HEADS_S), rng.randrange(kinds)
            start = heads.setdefault(name, _tokens(rng, _HEAD_TOKENS))
        earlier.append(Arrival(at_s, region, start + own))
    return sorted((arrival for listed in made.values() for arrival in listed), key=lambda arrival: arrival.at_s)


def _tokens(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.choices(range(30_000), k=count))


def engine_profile() -> EngineProfile:
    """Return the profile that the live engines have with these options."""
    options = ["--block-size", str(BLOCK_TOKENS), *_OPTIONS, "--seed", "1"]
    return engine_server.read_settings(engine_server.parser().parse_args(options)).profile


def pool_policy() -> RoutingPolicy:
    """Return the policy of the simulated pools."""
    return POLICIES["ours"].router("us", engine_profile(), ENGINES).policy


def simulated(workload: Sequence[Arrival], phase: int) -> list[Served]:
    """Run the arrivals through the simulator. `phase` is the seed of the times at which gateways start."""
    rng = random.Random(phase)
    clock, profile, system = VirtualClock(), engine_profile(), POLICIES["ours"]
    network, gateways = RegionNetwork(clock, links()), list[SimulatedGateway]()
    for region in REGIONS:
        engines = [
            HostedEngine(f"{region}-{number + 1}", region, PrefillHandoffEngine(profile, emit_tokens=False), clock)
            for number in range(ENGINES)
        ]
        gateway = SimulatedGateway(
            region, system, profile, engines, clock, network, sovereignty=ALLOW_ALL, answered=lambda _request: None
        )
        gateways.append(gateway)
    for gateway in gateways:
        gateway.meet([other for other in gateways if other is not gateway])
        gateway.start(rng.uniform(0.0, system.report_s))
    requests = []
    for number, arrival in enumerate(workload):
        keys = token_block_keys(0, arrival.prompt, BLOCK_TOKENS)
        way_s = network.delay(arrival.region, arrival.region)
        request = RegionRequest(
            Prompt(len(arrival.prompt), keys),
            PromptSegment(number, OUTPUT_TOKENS),
            number,
            arrival.region,
            request_id=str(number),
            sent_s=arrival.at_s + 2.0,
            way_back_s=way_s,
        )
        requests.append(request)
        clock.at(request.sent_s + way_s, gateways[REGIONS.index(arrival.region)].arrive, request)
    clock.run(workload[-1].at_s + _DRAIN_S)
    return [
        Served(
            request.region,
            request.prompt.tokens,
            request.cached_tokens,
            request.served_region != request.region,
            request.first_token_s - request.sent_s,
        )
        for request in requests
        if request.first_token_s is not None
    ]


async def live(workload: Sequence[Arrival]) -> tuple[list[Served], dict[str, float]]:
    """Send the arrivals to the live regions; return what was served, and figures of the run itself."""
    with TemporaryDirectory() as folder:
        async with (
            region_fleet(
                Path(folder),
                engines=ENGINES,
                policy=pool_policy(),
                block_tokens=BLOCK_TOKENS,
                engine_options=_OPTIONS,
            ) as fleet,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            clients, late_s = RegionClients(fleet, session, seed=0), list[float]()
            await asyncio.sleep(2.0)
            start_s, cpu = time.monotonic(), cpu_s(os.getpid())
            for arrival in workload:
                await asyncio.sleep(max(0.0, start_s + arrival.at_s - time.monotonic()))
                late_s.append(time.monotonic() - start_s - arrival.at_s)
                clients.send(arrival.region, arrival.prompt, OUTPUT_TOKENS)
            cores = (cpu_s(os.getpid()) - cpu) / (time.monotonic() - start_s)
            await clients.finish(_DRAIN_S)
            engine_of = {
                str(event["decision_id"]): str(event["engine_id"])
                for event in fleet.events()
                if event.get("event") == "dispatched"
            }
    served = [
        Served(
            request.region,
            len(arrival.prompt),
            request.cached_tokens,
            not engine_of[request.decision_id].startswith(f"{request.region}-"),
            request.first_s - request.sent_s,
        )
        for arrival, request in zip(workload, clients.requests, strict=True)
        if request.complete and request.first_s is not None
    ]
    return served, {"live_cores": cores, "live_sent_late_p99_s": percentile(sorted(late_s), 99) or 0.0}


def figures_of(side: str, served: Sequence[Served]) -> dict[str, float]:
    """Return the compared figures, in total and by the clients' region."""
    figures = {f"{side}_served": float(len(served))}
    for name in ("", *REGIONS):
        part = [item for item in served if name in ("", item.region)]
        where = f"{side}_{name}_" if name else f"{side}_"
        figures[f"{where}forwarded_share"] = sum(item.crossed for item in part) / len(part)
        figures[f"{where}hit_rate"] = sum(item.cached_tokens for item in part) / sum(i.prompt_tokens for i in part)
        for percent in (50, 90):
            ttft_s = percentile(sorted(item.ttft_s for item in part), percent)
            figures[f"{where}ttft_p{percent}_s"] = ttft_s or 0.0
    return figures


def simulated_figures(workload: Sequence[Arrival]) -> dict[str, float]:
    """Return the means of the simulated figures over the phases, and the range of the forwarded share."""
    runs = [figures_of("simulated", simulated(workload, phase)) for phase in range(PHASES)]
    shares = [run["simulated_forwarded_share"] for run in runs]
    extremes = {"simulated_forwarded_share_min": min(shares), "simulated_forwarded_share_max": max(shares)}
    return {name: sum(run[name] for run in runs) / PHASES for name in runs[0]} | extremes


def targets_of(figures: dict[str, float], count: int) -> dict[str, Target]:
    """Return the bounds of the differences."""

    def apart(name: str) -> float:
        return abs(figures[f"live_{name}"] - figures[f"simulated_{name}"])

    return {
        "live_failed": Target(value=count - figures["live_served"], op="<=", target=0),
        "simulated_failed": Target(value=count - figures["simulated_served"], op="<=", target=0),
        # An agreement on no forwards would say nothing.
        "live_forwarded_share": Target(value=figures["live_forwarded_share"], op=">=", target=0.05),
        "forwarded_share_apart": Target(value=apart("forwarded_share"), op="<=", target=0.03),
        "hit_rate_apart": Target(value=apart("hit_rate"), op="<=", target=0.03),
        "ttft_p50_apart": Target(value=apart("ttft_p50_s") / figures["live_ttft_p50_s"], op="<=", target=0.15),
    }


def main() -> int:
    """Run both sides, and compare them. Return 1 if a target is missed."""
    parser = command_line("region_agreement", __doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time over which the requests arrive")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    workload = arrivals(options.requests, options.seconds, options.seed)
    figures = simulated_figures(workload)
    served, run = asyncio.run(live(workload))
    figures |= figures_of("live", served) | run
    targets = targets_of(figures, len(workload))
    return 0 if write_report("region_agreement", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
