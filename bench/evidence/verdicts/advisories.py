"""Targets for our own session rules: `ours` against other systems, and advisories on against off.

A target *holds* if the median of the seeds' paired ratios meets it, *holds within tolerance* if only the tolerance does
(3 % up to 768 users, 10 % above, 15 % of mean TTFT), and otherwise *does not hold*.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.evidence.measure.sessions.session_agents import PROJECTS
from bench.evidence.measure.sessions.session_limits import (
    AMPLE_GB,
    FRESH_USERS,
    LIMIT_USERS,
    MISSED_USERS,
    ON_DISK,
    SHORT_GB,
    SHORT_MEMORY,
    SPURIOUS,
)
from bench.evidence.measure.sessions.session_loads import BURST_USERS, PREFILL_USERS, USERS, USERS_13B
from bench.evidence.store import Row
from bench.evidence.verdicts.session_figures import TTFT_TOLERANCE, case, limits, project, ratio, ratios, tolerance

HOLDS, WITHIN, FAILS = "holds", "holds within tolerance", "does not hold"
_NORM, _TTFT, _TTFT_P99 = "norm_ms_per_token", "ttft_mean_s", "ttft_p99_s"
_AGAINST_RECOMPUTE = {256: 1.8, 512: 3.5, 768: 6.0}
_AGAINST_STICKY = {256: 1.0, 512: 1.15, 768: 2.0}


def claims() -> dict[str, Any]:
    """Return each target with its figures."""
    plain = {item: case("ours", item) for item in USERS}
    ondemand = {item: case("ondemand", item) for item in USERS}
    return {
        "recompute": _at_least("recompute", _AGAINST_RECOMPUTE),
        "sticky": _at_least("sticky", _AGAINST_STICKY),
        "on_off": _at_most([(plain[item], ondemand[item], 1.02) for item in USERS]),
        "ttft": _at_most([(plain[number], ondemand[number], 0.7) for number in (768, 1024)], _TTFT),
        "some_missed": _at_most([(limits("ours", item, missed=0.1), plain[item], 1.02) for item in MISSED_USERS]),
        "all_missed": _at_most([(limits("ours", item, missed=1.0), plain[item], 1.06) for item in MISSED_USERS]),
        "missed_ondemand": _at_most(
            [
                (limits("ours", item, missed=missed), ondemand[item], 1.05)
                for missed in (0.1, 1.0)
                for item in MISSED_USERS
            ]
        ),
        "spurious": _at_most(
            [
                (
                    limits("ours", LIMIT_USERS, spurious=SPURIOUS, dram_gb=AMPLE_GB),
                    limits("ours", LIMIT_USERS, dram_gb=AMPLE_GB),
                    1.05,
                ),
                (limits("ours", LIMIT_USERS, spurious=SPURIOUS, dram_gb=SHORT_GB), plain[LIMIT_USERS], 1.15),
            ]
        ),
        "on_disk": _figure(limits("ours", LIMIT_USERS, **ON_DISK), _TTFT, 0.10),
        "on_disk_p99": _figure(limits("ours", LIMIT_USERS, **ON_DISK), _TTFT_P99, 1.1),
        "memory": _figure(limits("ours", 896, hbm_tokens=SHORT_MEMORY), _NORM, 25.0),
        "never_worse": _never_worse(),
    }


def _at_least(over: str, bars: dict[int, float]) -> dict[str, Any]:
    pairs = [(case(over, item), case("ours", item)) for item in bars]
    medians = [ratio(*pair, _NORM) for pair in pairs]
    met = [one >= bar for one, bar in zip(medians, bars.values(), strict=True)]
    nearly = [one >= bar * (1 - tolerance(at)) for one, (at, bar) in zip(medians, bars.items(), strict=True)]
    return _spreads(pairs, _NORM) | {"bars": list(bars.values()), "users": list(bars), "verdict": _verdict(met, nearly)}


def _at_most(pairs: Sequence[tuple[Row, Row, float]], figure: str = _NORM) -> dict[str, Any]:
    medians = [ratio(one, other, figure) for one, other, _ in pairs]
    slack = [TTFT_TOLERANCE if figure == _TTFT else tolerance(one["users"]) for one, _, _ in pairs]
    met = [one <= bar for one, (_, _, bar) in zip(medians, pairs, strict=True)]
    nearly = [one <= bar * (1 + more) for one, (_, _, bar), more in zip(medians, pairs, slack, strict=True)]
    return _spreads([(one, other) for one, other, _ in pairs], figure) | {
        "users": [one["users"] for one, _, _ in pairs],
        "verdict": _verdict(met, nearly),
    }


def _figure(row: Row, figure: str, bar: float) -> dict[str, Any]:
    value, slack = median(row[figure]), TTFT_TOLERANCE if figure == _TTFT else 0.0
    return {
        "found": value,
        "least": min(row[figure]),
        "most": max(row[figure]),
        "verdict": _verdict([value <= bar], [value <= bar * (1 + slack)]),
    }


def _never_worse() -> dict[str, Any]:
    pairs = [
        *((case("ours", item), case("recompute", item)) for item in USERS[:-1]),
        *((case("ours", item, model="13b"), case("recompute", item, model="13b")) for item in USERS_13B),
        (limits("ours", FRESH_USERS, fresh=True), limits("recompute", FRESH_USERS, fresh=True)),
        *((case("ours", item, "burst"), case("recompute", item, "burst")) for item in BURST_USERS),
        *((case("ours", item, "prefill"), case("recompute", item, "prefill")) for item in PREFILL_USERS),
        *((project("ours", projects, files), project("recompute", projects, files)) for projects, files in PROJECTS),
    ]
    medians = [ratio(*pair, _NORM) for pair in pairs]
    return {
        "worst": max(medians),
        "settings": len(medians),
        "verdict": _verdict([item <= 1.0 for item in medians], [item <= 1.03 for item in medians]),
    }


def _spreads(pairs: Sequence[tuple[Row, Row]], figure: str) -> dict[str, Any]:
    by_pair = [ratios(*pair, figure) for pair in pairs]
    return {"found": [{"median": median(one), "least": min(one), "most": max(one)} for one in by_pair]}


def _verdict(met: Sequence[bool], nearly: Sequence[bool]) -> str:
    return HOLDS if all(met) else WITHIN if all(nearly) else FAILS
