"""What a day's live policy saved against each alternative, with ranges from the deviation between windows.

All savings are above 0 if the live policy needs fewer engine hours or answers fewer requests late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from planning.adviser.prediction import t95
from planning.savings.day_windows import LEAST_WINDOWS, DayWindow

LEAST_HOLDBACK = 100
"""Minimum judged requests of a holdback in a day; the late share of fewer says little."""


class RangedFigure(msgspec.Struct, frozen=True):
    """A figure and its 90 % range."""

    mid: float
    low: float
    high: float

    def scaled(self, factor: float) -> RangedFigure:
        """Return it in another unit; `factor` is 0 or more."""
        return RangedFigure(self.mid * factor, self.low * factor, self.high * factor)


class PolicyRun(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one window. Shares are of the window's counted requests, means over the seeds."""

    late: float
    """Requests that missed their objective: late, rejected, or without an answer."""
    tenants: dict[str, float] = {}
    """Late requests of each tenant, divided by all counted requests."""
    engines: float
    """Engines with which it answers as many on time as the live policy did with its own number of engines."""
    capped: bool = False
    """Whether it needs more engines than were simulated, so that `engines` is a lower bound."""


class ArmRun(msgspec.Struct, frozen=True):
    """The holdback and the live policy in one simulation of a window, which both serve as on the live fleet."""

    control: int
    control_late: int
    live: int
    live_late: int


class WindowRuns(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one window."""

    window: DayWindow
    live: PolicyRun
    alternatives: dict[str, PolicyRun]
    arms: tuple[ArmRun, ...] = ()
    """One per seed; empty without a holdback."""
    tokens: dict[str, int] = {}
    """Prompt and output tokens of each tenant."""


class DaySaving(msgspec.Struct, frozen=True, kw_only=True):
    """Savings against one alternative, of the pool or of one tenant."""

    alternative: str
    tenant: str = ""
    """Empty: all of them."""
    late: RangedFigure
    """Late answers avoided."""
    engine_h: RangedFigure
    """Engine hours saved; a tenant's part follows its tokens."""
    capped: bool = False
    """Whether some window needs more engines than were simulated: then the engine hours are a lower bound."""


class HoldbackCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The holdback's late share minus the live policy's, replayed and measured."""

    placement: str
    replayed: RangedFigure
    measured: float
    requests: int
    """Judged requests of the holdback."""

    @property
    def covered(self) -> bool:
        """Return whether the range of the replay covers the measured figure."""
        return self.replayed.low <= self.measured <= self.replayed.high


def day_savings(runs: Sequence[WindowRuns]) -> tuple[DaySaving, ...]:
    """Return the savings against each alternative: of the pool first, then of each tenant.

    Raises ValueError for fewer than LEAST_WINDOWS windows.
    """
    windows = [run.window for run in runs]
    requests, hours = ([float(getattr(item, name)) for item in windows] for name in ("requests", "hours"))
    tokens: dict[str, int] = {}
    for run in runs:
        for tenant, number in run.tokens.items():
            tokens[tenant] = tokens.get(tenant, 0) + number
    made = []
    for name in runs[0].alternatives:
        pairs = [(run.live, run.alternatives[name]) for run in runs]
        engine_h = day_total([other.engines - live.engines for live, other in pairs], hours, windows)
        late = day_total([other.late - live.late for live, other in pairs], requests, windows)
        capped = any(other.capped for _, other in pairs)
        made.append(DaySaving(alternative=name, late=late, engine_h=engine_h, capped=capped))
        for tenant in sorted(filter(None, tokens)):
            differences = [other.tenants.get(tenant, 0.0) - live.tenants.get(tenant, 0.0) for live, other in pairs]
            part = engine_h.scaled(tokens[tenant] / sum(tokens.values()))
            of_tenant = day_total(differences, requests, windows)
            made.append(DaySaving(alternative=name, tenant=tenant, late=of_tenant, engine_h=part, capped=capped))
    return tuple(made)


def day_total(values: Sequence[float], weights: Sequence[float], windows: Sequence[DayWindow]) -> RangedFigure:
    """Return the day's total of a figure per unit of weight, with its prediction interval.

    As in planning.adviser.prediction, the day is the mean of as many windows as it has: the replayed ones, divided by
    the share of requests that they contain. Raises ValueError for fewer than LEAST_WINDOWS values.
    """
    if len(values) < LEAST_WINDOWS:
        raise ValueError(f"{len(values)} windows give no range; {LEAST_WINDOWS} are needed")
    whole = sum(weights)
    mean, variance, effective = _weighted(values, weights)
    day = len(values) * sum(item.requests for item in windows) / sum(item.counted for item in windows)
    half = t95(len(values) - 1) * math.sqrt(variance * (1 / effective + 1 / day))
    return RangedFigure(mean * whole, (mean - half) * whole, (mean + half) * whole)


def holdback_check(runs: Sequence[WindowRuns], placement: str, measured: ArmRun) -> HoldbackCheck | None:
    """Return the replayed difference between both arms beside the measured one; None without enough of either.

    The range is for the measurement: its error is that of as many single runs as have the measured requests, because
    a run and the live fleet serve equally many sessions in the same bursts.
    """
    usable = [run for run in runs if sum(arm.control for arm in run.arms) and sum(arm.live for arm in run.arms)]
    if measured.control < LEAST_HOLDBACK or not measured.live or len(usable) < LEAST_WINDOWS:
        return None
    weights = [float(run.window.requests) for run in usable]
    mean, variance, effective = _weighted([_difference(run.arms) for run in usable], weights)
    single = [arm for run in usable for arm in run.arms if arm.control and arm.live]
    _, of_one, _ = _weighted([_difference((arm,)) for arm in single], [float(arm.control) for arm in single])
    control, live = sum(arm.control for arm in single), sum(arm.live for arm in single)
    days = measured.control / (control / len(single))
    # Where no simulated request is late, the deviation is 0, but one more request could be late.
    least = _binomial(sum(arm.control_late for arm in single), control) / measured.control
    least += _binomial(sum(arm.live_late for arm in single), live) / measured.live
    half = t95(len(usable) - 1) * math.sqrt(variance / effective + max(of_one / days, least))
    difference = measured.control_late / measured.control - measured.live_late / measured.live
    replayed = RangedFigure(mean, mean - half, mean + half)
    return HoldbackCheck(placement=placement, replayed=replayed, measured=difference, requests=measured.control)


def engines_needed(on_time: Mapping[int, float], target: float) -> float | None:
    """Return the number of engines at which the on-time share reaches the target, between two simulated numbers.

    None if no simulated number reaches it. `on_time` maps numbers of engines to shares.
    """
    enough = min((number for number, share in on_time.items() if share >= target), default=None)
    if enough is None:
        return None
    below = max((number for number in on_time if number < enough), default=None)
    if below is None:
        return float(enough)
    low, high = on_time[below], on_time[enough]
    return below + (enough - below) * (target - low) / (high - low)


def _weighted(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float, float]:
    """Return the weighted mean, the variance of one value, and the effective number of values."""
    whole, effective = sum(weights), sum(weights) ** 2 / sum(item * item for item in weights)
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / whole
    spread = sum(weight * (value - mean) ** 2 for value, weight in zip(values, weights, strict=True)) / whole
    return mean, spread * len(values) / max(1, len(values) - 1), effective


def _difference(arms: Sequence[ArmRun]) -> float:
    control, live = sum(arm.control for arm in arms), sum(arm.live for arm in arms)
    return sum(arm.control_late for arm in arms) / control - sum(arm.live_late for arm in arms) / live


def _binomial(late: int, requests: int) -> float:
    share = (late + 1) / (requests + 2)
    return share * (1 - share)
