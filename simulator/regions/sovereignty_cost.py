"""The cost of sovereignty rules: a small fleet of the same regions, simulated with and without them.

`python -m simulator.regions.sovereignty_cost` is the child process that reads a CostQuestion. Each region in
turn is busy, with more clients than its engines can hold, while the others are quiet; figures are means. The traffic is
the chat of `wild`, in equal parts from the tenants that the rules name and one other tenant.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec

from routing.regions.sovereignty import SovereigntyDocument, SovereigntyRule
from routing.values.prepared_struct import prepared
from simulator.child_task import OnShare, serve_task
from simulator.regions.region_report import RegionReport

MOST_ENGINES = 8
"""Maximum number of engines; larger fleets are scaled down in proportion, with at least one engine per region."""
MOST_REGIONS = 6
MOST_RULES = 8
"""Maximum number of rules that are omitted one by one."""
BUSY, QUIET = 45, 8
"""Clients per engine of a busy and of a quiet region. An engine's batch holds about 30 of these requests."""
WARMUP_S, DURATION_S = 15.0, 60.0


class CostQuestion(msgspec.Struct, frozen=True):
    """The rules, and the engines of each region."""

    document: SovereigntyDocument
    engines: dict[str, int]
    seed: int = 31


class Served(msgspec.Struct, frozen=True):
    """The throughput of a fleet under a set of rules, absolute and relative to the same fleet without rules."""

    tokens_per_s: float
    ttft_p90_s: float
    crossed_share: float
    over_free: float


class SovereigntyCost(msgspec.Struct, frozen=True):
    """The simulated fleet without rules, under all rules, and without each rule."""

    engines: dict[str, int]
    free: Served
    ruled: Served
    without: dict[str, Served] = {}
    """Results by omitted rule, for the first MOST_RULES rules."""


def cost_of(question: CostQuestion, progress: OnShare = lambda _share: None) -> SovereigntyCost:
    """Simulate the fleets, and report the completed share after each run.

    Raises ValueError if fewer than two or more than MOST_REGIONS regions have engines.
    """
    fleet = _sized({region: count for region, count in question.engines.items() if count})
    if not 2 <= len(fleet) <= MOST_REGIONS:
        raise ValueError(f"{len(fleet)} regions have engines; the simulation takes 2 to {MOST_REGIONS}")
    document = question.document
    # All runs have the same tenants, so that they have the same requests.
    named = ("", *document.tenants)
    done, runs = 0, len(fleet) * (2 + len(document.rules[:MOST_RULES]))

    def step() -> None:
        nonlocal done
        done += 1
        progress(done / runs)

    free_reports = _turns(fleet, SovereigntyDocument(), named, question.seed, step)
    base = _mean([report.tokens_per_s for report in free_reports])

    def served(rules: SovereigntyDocument) -> Served:
        return _served(_turns(fleet, rules, named, question.seed, step), base)

    without = {
        rule.name: served(msgspec.structs.replace(document, rules=_others(document, at)))
        for at, rule in enumerate(document.rules[:MOST_RULES])
    }
    return SovereigntyCost(fleet, _served(free_reports, base), served(document), without)


def _others(document: SovereigntyDocument, at: int) -> tuple[SovereigntyRule, ...]:
    return (*document.rules[:at], *document.rules[at + 1 :])


def _sized(engines: dict[str, int]) -> dict[str, int]:
    """Return the engines per region, scaled to about MOST_ENGINES in total."""
    scale = min(1.0, MOST_ENGINES / max(1, sum(engines.values())))
    return {region: max(1, round(count * scale)) for region, count in sorted(engines.items())}


def _turns(
    fleet: dict[str, int],
    document: SovereigntyDocument,
    tenants: tuple[str, ...],
    seed: int,
    on_run: Callable[[], None],
) -> list[RegionReport]:
    # Here, because the console imports this module for its question alone, and must start without a router.
    from simulator.regions.region_run import RegionRun, RegionSpec

    reports = []
    for busy in fleet:
        spec = RegionSpec(
            "wild",
            "ours",
            seed,
            clients=tuple(count * (BUSY if region == busy else QUIET) for region, count in fleet.items()),
            replicas=tuple(fleet.values()),
            duration_s=DURATION_S,
            warmup_s=WARMUP_S,
            regions=tuple(fleet),
            sovereignty=document,
            tenants=tenants,
        )
        reports.append(RegionRun(spec).run())
        on_run()
    return reports


def _served(reports: Sequence[RegionReport], base: float) -> Served:
    tokens_per_s = _mean([report.tokens_per_s for report in reports])
    return Served(
        round(tokens_per_s, 1),
        round(_mean([report.ttft_p90_s for report in reports]), 3),
        round(_mean([report.crossed_share for report in reports]), 4),
        round(tokens_per_s / base, 4) if base else 1.0,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _compute(encoded: bytes, progress: OnShare) -> SovereigntyCost:
    return cost_of(msgspec.json.decode(encoded, type=prepared(CostQuestion)), progress)


if __name__ == "__main__":
    sys.exit(serve_task(sys.argv[1:], _compute, (ValueError,)))
