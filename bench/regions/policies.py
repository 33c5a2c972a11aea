"""Ours against SkyWalker, and the claims of SkyWalker's paper: `python -m bench.regions.policies --json OUT`.

CLAIMS contains the definition of each claim, written before the runs. All are runs of `manage.py simulate_regions` with
paired seeds that were not used to choose any parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from bench.report import Target, command_line, write_report
from simulator.regions.region_report import RegionReport
from simulator.regions.region_run import RegionRun, RegionSpec

SEEDS = (31, 32, 33, 34, 35, 36)

_ONE_REGION: dict[str, Any] = {"workload": "tot", "clients": (30, 0, 0), "replicas": (4, 0, 0)}
_CHAT: dict[str, Any] = {"workload": "wild", "clients": (120, 40, 40)}
_TREES: dict[str, Any] = {"workload": "tot", "clients": (60, 20, 20)}
CASES: dict[str, dict[str, Any]] = {
    **{workload: {"workload": workload} for workload in ("tot", "mixed", "arena", "wild")},
    **{f"micro_{tokens}k": {**_ONE_REGION, "kv_tokens": tokens * 1000} for tokens in (20, 30, 60)},
    **{f"chat_{3 * number}": {**_CHAT, "replicas": (number,) * 3} for number in (2, 3, 4, 5)},
    **{f"trees_{3 * number}": {**_TREES, "replicas": (number,) * 3} for number in (2, 3, 4, 5)},
    "arena_think": {"workload": "arena", "think_s": 2.0},
    "chat_12_roomy": {**_CHAT, "replicas": (4, 4, 4), "kv_tokens": 60_000},
}


class Claim(msgspec.Struct, frozen=True):
    """A policy's figure in a case, relative to that of another policy if one is named (by default in the same case)."""

    key: str
    case: str
    policy: str
    field: str = "tokens_per_s"
    over: str = ""
    over_case: str = ""
    op: str = ">="
    bound: float | None = None
    """The bound of the verdict. Without it, the figure is only reported."""

    def value(self, seeds: Sequence[int]) -> float:
        """Return the mean over seeds, or the mean of paired ratios (for P90s, the ratio of means)."""
        mine = [_figure(self.case, self.policy, seed, self.field) for seed in seeds]
        if not self.over:
            return sum(mine) / len(mine)
        others = [_figure(self.over_case or self.case, self.over, seed, self.field) for seed in seeds]
        if self.field == "ttft_p90_s":
            return sum(mine) / sum(others)
        return sum(one / other for one, other in zip(mine, others, strict=True)) / len(mine)


def _ours(case: str, bound: float, over: str = "skywalker") -> Claim:
    return Claim(f"ours_over_{over}_{case}", case, "ours", over=over, bound=bound)


def _claims() -> list[Claim]:
    balanced, central = ("tot", "mixed", "arena", "wild"), ("round_robin", "least_load", "consistent_hash")
    claims = [
        *(_ours(case, bound) for case, bound in (("tot", 1.0), ("mixed", 1.01), ("arena", 1.03), ("wild", 1.01))),
        *(_ours(case, bound) for case, bound in (("chat_12", 1.06), ("trees_12", 1.07), ("trees_9", 1.12))),
        _ours("chat_12", 1.17, "region_local"),
        _ours("trees_12", 1.2, "region_local"),
        Claim("ours_over_skywalker_arena_think", "arena_think", "ours", over="skywalker"),
        Claim("ours_over_skywalker_chat_12_roomy", "chat_12_roomy", "ours", over="skywalker"),
    ]
    for case in balanced:
        claims += [
            Claim(f"p90_ours_over_skywalker_{case}", case, "ours", "ttft_p90_s", "skywalker", op="<=", bound=1.1),
            Claim(f"ours_over_pooled_bound_{case}", case, "ours", over="pooled_bound", op="<=", bound=1.01),
            Claim(f"ch_skywalker_over_ch_{case}", case, "skywalker", over="skywalker_ch", bound=1.0134),
            Claim(f"5.1_over_gke_{case}", case, "skywalker", over="nearest_round_robin", bound=1.43),
        ]
        for other in (*central, "sglang_central"):
            bound = 1.12 if case in {"arena", "wild"} else None
            claims += [
                Claim(f"5.1_over_{other}_{case}", case, "skywalker", over=other, bound=bound),
                Claim(f"5.1_p50_over_{other}_{case}", case, "skywalker", "ttft_p50_s", other, op="<=", bound=0.5763),
                Claim(f"5.1_p90_over_{other}_{case}", case, "skywalker", "ttft_p90_s", other, op="<=", bound=0.2338),
                Claim(f"5.1_e2e_{other}_over_{case}", case, other, "e2e_p50_s", "skywalker", bound=1.05),
            ]
        for policy in ("round_robin", "least_load", "consistent_hash", "skywalker", "ours", "pooled_bound"):
            claims.append(Claim(f"hits_{policy}_{case}", case, policy, "hit_rate"))
    return claims + _push_claims() + _skew_claims()


def _push_claims() -> list[Claim]:
    """Return the claims of Fig. 9: blind pushing (BP), by pending (SP-P) and by in-flight requests (SP-O)."""
    bp, spp, claims = "sglang_central", "sglang_pending", []
    for case, low, p90 in (("micro_20k", 1.1, 1 / 8), ("micro_30k", 1.1, 1 / 8), ("micro_60k", 0.98, None)):
        claims += [
            Claim(f"fig9_spp_over_bp_{case}", case, spp, over=bp, bound=low),
            Claim(f"fig9_p90_spp_over_bp_{case}", case, spp, "ttft_p90_s", bp, op="<=", bound=p90),
            Claim(f"fig9_spp_over_spo16_{case}", case, spp, over="sglang_in_flight_16", bound=1.2),
            Claim(f"fig9_spp_over_spo24_{case}", case, spp, over="sglang_in_flight_24", bound=1.2),
            Claim(f"fig9_trie_spp_over_bp_{case}", case, "skywalker", over=bp),
            *(Claim(f"fig9_hits_{item}_{case}", case, item, "hit_rate") for item in (bp, spp, "skywalker")),
        ]
    return [*claims, Claim("fig9_no_gain_micro_60k", "micro_60k", spp, over=bp, op="<=", bound=1.06)]


def _skew_claims() -> list[Claim]:
    """Return the claims of Fig. 10: SkyWalker against region-local engines, with equal and with fewer engines."""
    claims = []
    for kind in ("chat", "trees"):
        for engines in (6, 9, 12, 15):
            case, bound = f"{kind}_{engines}", 1.07 if engines > 6 else None
            claims.append(Claim(f"fig10_over_local_{case}", case, "skywalker", over="region_local", bound=bound))
            claims.append(Claim(f"ours_over_local_{case}", case, "ours", over="region_local"))
        for policy in ("skywalker", "ours"):
            key = f"fig10_{policy}_9_over_local_12_{kind}"
            claims.append(Claim(key, f"{kind}_9", policy, over="region_local", over_case=f"{kind}_12", bound=0.97))
    return claims


CLAIMS = _claims()


@cache
def _run(case: str, policy: str, seed: int) -> RegionReport:
    return RegionRun(RegionSpec(policy=policy, seed=seed, **CASES[case])).run()


def _figure(case: str, policy: str, seed: int, field: str) -> float:
    return float(getattr(_run(case, policy, seed), field))


def main() -> None:
    """Run the claims and write the result."""
    parser = command_line("region_policies", __doc__)
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), metavar="1,2,3")
    parser.add_argument("--only", default="", metavar="KEY", help="only claims with a bound whose key begins with this")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    figures: dict[str, float] = {}
    targets: dict[str, Target] = {}
    for claim in CLAIMS:
        if options.only and (claim.bound is None or not claim.key.startswith(tuple(options.only.split(",")))):
            continue
        value = round(claim.value(seeds), 4)
        if claim.bound is None:
            figures[claim.key] = value
        else:
            targets[claim.key] = Target(value=value, op=claim.op, target=claim.bound)
    write_report("region_policies", figures, targets, options.json)


if __name__ == "__main__":
    main()
