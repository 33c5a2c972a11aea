"""Days of the ledger of savings with figures that can be checked by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from controlplane.savings.job import store
from controlplane.savings.models.savings_rows import SavingsDay
from controlplane.savings.replay_child import DayResult
from controlplane.trials.models.holdback import HoldbackDay
from controlplane.usage.models.usage_rows import EngineDay
from planning.savings.day_savings import ArmRun, PolicyRun, WindowRuns
from planning.savings.day_windows import DayWindow
from simulator.savings.day_replay import DayRuns

DAY = date(2026, 11, 10)
ARMS = (ArmRun(50, 5, 450, 9),) * 3


def result(engines: float = 6.0, late: float = 0.1, windows: int = 4, *, capped: bool = False) -> DayResult:
    """Return a day of four windows of 100 requests and 3 hours: against round robin, each needs engines beyond 4."""
    runs = tuple(
        WindowRuns(
            window=DayWindow(first=0, last=100, warmup=0, requests=100, hours=3.0),
            live=PolicyRun(late=0.0, engines=4.0),
            alternatives={"round_robin": PolicyRun(late=late, engines=engines, tenants={"acme": late}, capped=capped)},
            arms=ARMS,
            tokens={"acme": 300, "beta": 100},
        )
        for _ in range(windows)
    )
    replay = DayRuns(runs=runs, engine_model="chunked", cpu_s=1.0, cut_short=windows < 4)
    return DayResult(requests=400, windows=4, recorded_late=0.02, versions=(1,), replay=replay)


def keep(pool: str, day: date = DAY, given: DayResult | None = None) -> SavingsDay:
    """Store a day's result."""
    row = SavingsDay(day=day, pool=pool)
    store(row, given or result())
    return row


def price(pool: str, per_h: float, day: date = DAY) -> None:
    """Let engines of the pool have served ten hours for this price."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(hours=23)
    EngineDay.objects.create(
        day=day, pool=pool, model="m", engine_s=36_000, priced_s=36_000, cost=10 * per_h, counted_to=at
    )


def held(pool: str, late: int, day: date = DAY) -> None:
    """Let a holdback have answered a tenth of 10,000 requests, `late` of them late; the policy 2 % of its own."""
    HoldbackDay.objects.create(
        day=day, pool=pool, placement="least_loaded", control=1000, control_late=late, live=9000, live_late=180
    )
