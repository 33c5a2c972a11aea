"""Figures around the limits of the verdicts on sessions: SYMPHONY's claims, and our own targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.evidence.measure.sessions.session_agents import PROJECTS
from bench.evidence.verdicts import advisories, symphony
from bench.evidence.verdicts.advisories import FAILS, HOLDS, WITHIN
from bench.evidence.verdicts.verdict import NOT, PARTLY, REPRODUCED, Judged
from tests.bench.evidence.planted.plants import Patch, at, plant

_FIGURES = (
    "tpot_ms", "norm_ms_per_token", "requests_per_s", "max_over_median_requests", "project_s", "ttft_mean_s",
    "priority_tpot_ms", "regular_tpot_ms",
)  # fmt: skip


def _row(value: float, users: int = 256, **figures: float) -> dict[str, Any]:
    """Return a row of three seeds with the same figures."""
    return {"users": users} | {name: [figures.get(name, value)] * 3 for name in _FIGURES}


def _case(values: Mapping[tuple[str, int], float]) -> Callable[..., dict[str, Any]]:
    return lambda system, users, *_, **__: _row(values.get((system, users), 1.0), users)


@plant(
    "symphony.within",
    ((1.301, 1.0), REPRODUCED),
    ((1.299, 1.0), PARTLY),
    ((1.031, 1.0), PARTLY),
    ((1.029, 1.0), NOT),
)
@plant("symphony.within", ((2.124, 1.0), REPRODUCED), ((2.126, 1.0), PARTLY))
@plant("symphony.within", ((1.5, 0.971), REPRODUCED), ((1.5, 0.969), PARTLY))
def within(patch: Patch, ratios: tuple[float, float]) -> Judged:
    """The ratio at the middle load, and at a lower one."""
    patch(symphony, case=_case({("recompute", 256): ratios[0], ("recompute", 128): ratios[1]}))
    return symphony.within("recompute", (1.4, 1.9), (128, 256), 256)


@plant("symphony._up_to", ((1.0, 2.126), REPRODUCED), ((1.0, 2.124), PARTLY))
@plant("symphony._up_to", ((1.0, 2.874), REPRODUCED), ((1.0, 2.876), PARTLY))
@plant("symphony._up_to", ((0.971, 2.5), REPRODUCED), ((0.969, 2.5), PARTLY))
@plant("symphony._up_to", ((1.0, 1.101), PARTLY), ((1.0, 1.099), NOT))
@plant("symphony._up_to", ((1.031, 1.0), PARTLY), ((1.029, 1.0), NOT))
def _up_to(_patch: Patch, ratios: tuple[float, float]) -> Judged:
    return symphony._up_to(list(ratios), 2.5, (256, 1024))


@plant("symphony.up_to", (2.126, REPRODUCED), (2.124, PARTLY), (1.031, PARTLY), (1.029, NOT))
def up_to(patch: Patch, ratio: float) -> Judged:
    patch(symphony, case=_case({("sticky", 512): ratio}))
    return symphony.up_to("sticky", 2.5, (256, 512))


@plant("symphony.compressed", (1.353, REPRODUCED), (1.352, PARTLY), (1.031, PARTLY), (1.029, NOT))
def compressed(patch: Patch, ratio: float) -> Judged:
    """Up to 1.47 times."""

    def case(_system: str, users: int, *, compressed: bool = False) -> dict[str, Any]:
        return _row(1.0 if compressed or users == 1024 else ratio, users)

    patch(symphony, case=case)
    return symphony.compressed()


@plant("symphony.agents", (2.36, REPRODUCED), (2.34, PARTLY), (1.031, PARTLY), (1.029, NOT))
def agents(patch: Patch, ratio: float) -> Judged:
    def project(system: str, users: int, files: int) -> dict[str, Any]:
        return _row(ratio if (system, users, files) == ("recompute", *PROJECTS[0]) else 1.0, users)

    patch(symphony, project=project)
    return symphony.agents("recompute", 2.8)


@plant("symphony.ablation", (1.163, REPRODUCED), (1.162, PARTLY), (1.101, PARTLY), (1.099, NOT))
def ablation(patch: Patch, ratio: float) -> Judged:
    """Up to 1.217 times, with 896 users."""
    patch(symphony, limits=lambda system, users, **_: _row(1.0 if system == "symphony" else ratio, users))
    return symphony.ablation("symphony_oldest_first", 1.217)


@plant("symphony.users_at_equal_tpot", ((20.5, 20.5), REPRODUCED), ((20.5, 20.6), PARTLY), ((20.6, 20.6), NOT))
def users_at_equal_tpot(patch: Patch, tpot: tuple[float, float]) -> Judged:
    """TPOT of `symphony` with 128 and 256 users. `recompute` holds the limit with 64."""
    symphonys = {64: 18.0, 128: tpot[0], 256: tpot[1]}

    def case(system: str, users: int) -> dict[str, Any]:
        most = symphonys if system == "symphony" else {64: 18.0}
        return _row(most.get(users, 50.0), users)

    patch(symphony, case=case)
    return symphony.users_at_equal_tpot()


@plant("symphony.latency", ((2.06, 2.06), REPRODUCED), ((2.06, 2.04), PARTLY))
@plant("symphony.latency", ((2.74, 2.06), REPRODUCED), ((2.76, 2.06), PARTLY))
@plant("symphony.latency", ((2.06, 1.031), PARTLY), ((2.06, 1.029), NOT))
def latency(patch: Patch, ratios: tuple[float, float]) -> Judged:
    """With the seeds of the headlines, and with the earlier ones."""

    def case(system: str, users: int, *, result: str = "") -> dict[str, Any]:
        return _row(ratios[not result] if system == "recompute" else 1.0, users)

    patch(symphony, case=case, against_ours=dict)
    return symphony.latency()


@plant("symphony.requests", (3.41, REPRODUCED), (3.39, PARTLY), (1.101, PARTLY), (1.099, NOT))
@plant("symphony.requests", (4.99, REPRODUCED), (5.01, PARTLY))
def requests(patch: Patch, ratio: float) -> Judged:
    patch(symphony, case=lambda system, users, **_: _row(ratio if system == "symphony" else 1.0, users))
    return symphony.requests("sticky", 4.2)


@plant("symphony.imbalance", ((2.58, 1.71, 1.71), REPRODUCED), ((2.57, 1.71, 1.71), NOT))
@plant("symphony.imbalance", ((3.0, 1.99, 1.99), REPRODUCED), ((3.0, 1.99, 2.01), PARTLY), ((3.0, 2.01, 2.01), NOT))
def imbalance(patch: Patch, most: tuple[float, float, float]) -> Judged:
    names = (("sticky", 256), ("recompute", 256), ("symphony", 256))
    patch(symphony, case=_case(dict(zip(names, most, strict=True))))
    return symphony.imbalance()


@plant("symphony.prefill_only", ((1.031, 1.09), REPRODUCED), ((1.031, 1.11), PARTLY), ((1.029, 1.11), NOT))
@plant("symphony.prefill_only", ((1.031, 0.91), REPRODUCED), ((1.031, 0.89), PARTLY))
def prefill_only(patch: Patch, ratios: tuple[float, float]) -> Judged:
    """`sticky` over `symphony`, and `migrate` over `sticky`."""
    slower, moved = ratios
    patch(symphony, case=_case({("sticky", 512): slower, ("migrate", 512): slower * moved}))
    return symphony.prefill_only()


def _missed(patch: Patch, ratios: tuple[float, float], over: str) -> None:
    """Plant the latency with missed advisories at both loads, over that of a system."""
    measured = dict(zip(symphony.MISSED_USERS, ratios, strict=True))
    patch(
        symphony,
        limits=lambda _system, users, **_: _row(measured[users], users),
        case=lambda system, users, **_: _row(1.0 if system == over else 9.0, users),
    )


@plant("symphony.some_missed", ((1.0, 1.031), REPRODUCED), ((1.0, 1.029), PARTLY))
@plant("symphony.some_missed", ((0.971, 1.031), REPRODUCED), ((0.969, 1.031), NOT))
@plant("symphony.some_missed", ((1.0, 1.149), REPRODUCED), ((1.0, 1.151), NOT))
@plant("symphony.some_missed", ((0.971, 1.0), PARTLY), ((0.969, 1.0), NOT))
def some_missed(patch: Patch, ratios: tuple[float, float]) -> Judged:
    _missed(patch, ratios, "symphony")
    return symphony.some_missed()


@plant("symphony.all_missed", ((1.09, 0.91), REPRODUCED), ((1.11, 0.91), PARTLY), ((1.11, 0.89), NOT))
def all_missed(patch: Patch, ratios: tuple[float, float]) -> Judged:
    _missed(patch, ratios, "sticky")
    return symphony.all_missed()


@plant("symphony.spurious", ((0.959, 0.959), REPRODUCED), ((0.959, 0.957), PARTLY), ((0.957, 0.957), NOT))
def spurious(patch: Patch, ratios: tuple[float, float]) -> Judged:
    measured = dict(zip(symphony.SPURIOUS_USERS_13B, ratios, strict=True))
    patch(
        symphony,
        limits=lambda _system, users, **_: _row(measured[users], users),
        case=lambda _system, users, **_: _row(1.0, users),
    )
    return symphony.spurious()


_BETTER = (1.031, 1.031, 1.031)


@plant(
    "symphony.priorities",
    ((_BETTER, _BETTER), REPRODUCED),
    ((_BETTER, at(_BETTER, but=1.029)), PARTLY),
    ((at(_BETTER, but=1.029), at(_BETTER, but=1.029)), NOT),
)
def priorities(patch: Patch, ratios: tuple[tuple[float, ...], tuple[float, ...]]) -> Judged:
    """Requests with priority and others, by share of those with priority."""
    by_share = dict(zip(symphony.SHARES, zip(*ratios, strict=True), strict=True))

    def case(system: str, users: int, *, priority: float, **_: object) -> dict[str, Any]:
        first, second = by_share[priority] if system == "recompute" else (1.0, 1.0)
        return _row(1.0, users, priority_tpot_ms=first, regular_tpot_ms=second)

    patch(symphony, case=case)
    return symphony.priorities()


@plant("advisories._at_least", (1.8, HOLDS), (1.79, WITHIN), (1.747, WITHIN), (1.745, FAILS))
def at_least(patch: Patch, ratio: float) -> Judged:
    patch(advisories, case=_case({("recompute", 256): ratio}))
    return advisories._at_least("recompute", {256: 1.8})


@plant("advisories._at_most", (1.02, HOLDS), (1.021, WITHIN), (1.05, WITHIN), (1.051, FAILS))
def at_most(_patch: Patch, ratio: float) -> Judged:
    return advisories._at_most([(_row(ratio), _row(1.0), 1.02)])


@plant("advisories._at_most", (1.121, WITHIN), (1.123, FAILS))
def at_most_past_saturation(_patch: Patch, ratio: float) -> Judged:
    return advisories._at_most([(_row(ratio, 896), _row(1.0, 896), 1.02)])


@plant("advisories._at_most", (0.7, HOLDS), (0.701, WITHIN), (0.804, WITHIN), (0.806, FAILS))
def at_most_of_ttft(_patch: Patch, ratio: float) -> Judged:
    return advisories._at_most([(_row(ratio), _row(1.0), 0.7)], "ttft_mean_s")


@plant("advisories._figure", (0.1, HOLDS), (0.101, WITHIN), (0.114, WITHIN), (0.116, FAILS))
def figure(_patch: Patch, seconds: float) -> Judged:
    return advisories._figure(_row(seconds), "ttft_mean_s", 0.1)


@plant("advisories._figure", (25.0, HOLDS), (25.1, FAILS))
def figure_without_tolerance(_patch: Patch, ms: float) -> Judged:
    return advisories._figure(_row(ms), "norm_ms_per_token", 25.0)


@plant("advisories._never_worse", (1.0, HOLDS), (1.001, WITHIN), (1.029, WITHIN), (1.031, FAILS))
def never_worse(patch: Patch, worst: float) -> Judged:
    """The ratio of one setting; it is 1 in the others."""
    patch(
        advisories,
        case=_case({}),
        limits=lambda system, users, **_: _row(worst if system == "ours" else 1.0, users),
        project=lambda _system, users, _files: _row(1.0, users),
    )
    return advisories._never_worse()
