"""Adds batches of usage to the ledger: each entry of each journal once, in the transaction that raises its mark."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models, transaction
from django.db.models import F, Sum

from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.usage.grants import Held, confirm, divide, spend
from controlplane.usage.models.budget import Budget, BudgetSpending, BudgetUnit, BudgetWindow
from controlplane.usage.models.usage_rows import JournalMark, UsageDay, UsageMinute
from gateway.contracts.wire import UnreadableMessageError
from gateway.usage.usage_messages import (
    INTERRUPTED,
    OVER_BUDGET,
    UNREPORTED,
    WOULD_REJECT,
    BudgetState,
    UsageBatch,
    UsageEntry,
    UsageState,
    decode_batch,
    window_end,
    window_start,
)

logger = logging.getLogger(__name__)

ACTOR = program("usage ledger")
LIVE = timedelta(seconds=120)
"""Time after its last message for which a gateway keeps its parts of budgets."""
FORGET = timedelta(days=30)
"""Time after which the mark of a silent journal is no longer sent."""
NOTICE_EVERY = timedelta(hours=1)
"""Minimum time between two notices of a budget per minute."""
_FUTURE_MS = 86_400_000
_COUNTED = {
    "failed": "failed", "rejected": "rejected", OVER_BUDGET: "rejected", INTERRUPTED: "interrupted",
    "cancelled": "client_ended", "client_error": "client_ended", UNREPORTED: "unreported",
}  # fmt: skip

Key = tuple[object, ...]


@dataclass(slots=True)
class UsageSums:
    """Sums of new entries. Mutable: rows by key, and spending by (tenant, key id)."""

    days: dict[Key, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    minutes: dict[Key, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))

    def add(self, entry: UsageEntry, at: datetime) -> None:
        """Add one entry."""
        tenant, key_id = entry.tenant_id[:64], entry.key_id[:64]
        day = self.days[at.date(), tenant, key_id, entry.pool_id[:64], entry.model[:200]]
        day["requests"] += entry.requests
        day["late"] += entry.late
        if counted := _COUNTED.get(entry.outcome):
            day[counted] += entry.requests
        day["over_budget"] += entry.outcome == OVER_BUDGET
        day["would_reject"] += entry.outcome == WOULD_REJECT
        day["prompt_tokens"] += entry.prompt
        day["cached_tokens"] += entry.cached
        day["output_tokens"] += entry.output
        day["charge"] += entry.charge
        minute = self.minutes[at.replace(second=0, microsecond=0), tenant, key_id]
        minute["requests"] += entry.requests
        minute["tokens"] += entry.prompt + entry.output
        minute["charge"] += entry.charge

    def store(self) -> None:
        """Add the sums to the stored rows."""
        for (day, tenant, key_id, pool, model), added in self.days.items():
            _add(UsageDay, {"day": day, "tenant": tenant, "key_id": key_id, "pool": pool, "model": model}, added)
        for (minute, tenant, key_id), added in self.minutes.items():
            _add(UsageMinute, {"minute": minute, "tenant": tenant, "key_id": key_id}, added)


def _add(model: type[models.Model], key: dict[str, object], added: dict[str, int]) -> None:
    rows = model._default_manager
    if not rows.filter(**key).update(**{name: F(name) + amount for name, amount in added.items() if amount}):
        rows.create(**key, **added)


def apply_batches(values: Iterable[bytes], now: datetime, version: int) -> UsageState:
    """Apply the batches in one transaction, and return the state under this version, or a later one.

    Batches that are applied already change nothing. A batch after a gap is left out: its gateway sends the gap again.
    """
    with transaction.atomic():
        marks = {item.journal: item for item in JournalMark.objects.select_for_update()}
        version = max([version, *(item.state_version + 1 for item in marks.values())])
        spendings = [_BudgetLedger(item) for item in _spendings()]
        sums = UsageSums()
        for batch in _read(values):
            mark = marks.setdefault(batch.journal, JournalMark(journal=batch.journal, seen_at=now))
            for entry in _fresh(batch, mark):
                at = _moment(entry, now)
                sums.add(entry, at)
                for ledger in spendings:
                    ledger.take(entry, batch.journal, int(at.timestamp() * 1000))
            mark.state_version, mark.seen_at = max(mark.state_version, batch.state), now
            for ledger in spendings:
                ledger.confirm(batch.journal, batch.state)
        sums.store()
        for mark in marks.values():
            if mark.seen_at == now:
                mark.save()
        live = [name for name, mark in marks.items() if now - mark.seen_at <= LIVE]
        budget_states = {ledger.budget.slug: ledger.settle(now, live, version) for ledger in spendings}
        return UsageState(
            version, {name: mark.mark for name, mark in marks.items() if now - mark.seen_at <= FORGET}, budget_states
        )


def _read(values: Iterable[bytes]) -> Iterable[UsageBatch]:
    for value in values:
        try:
            yield decode_batch(value)
        except UnreadableMessageError as error:
            logger.warning("a usage batch cannot be read", extra={"reason": str(error)})


def _fresh(batch: UsageBatch, mark: JournalMark) -> Sequence[UsageEntry]:
    """Return the entries that are not applied, and raise the mark over them."""
    if batch.mark > mark.mark:
        if mark.mark:
            logger.warning(
                "the ledger is older than a gateway's journal, as after a restore; entries between are lost",
                extra={"journal": batch.journal, "stored": mark.mark, "journal_from": batch.mark},
            )
        mark.mark = batch.mark
    if batch.after > mark.mark:
        return ()
    fresh = [entry for entry in batch.entries if entry.number > mark.mark]
    if fresh:
        mark.mark = fresh[-1].number
    return fresh


def _moment(entry: UsageEntry, now: datetime) -> datetime:
    """Return the entry's time. A clock that is a day ahead counts as now."""
    now_ms = int(now.timestamp() * 1000)
    at_ms = entry.at_ms if 0 < entry.at_ms < now_ms + _FUTURE_MS else now_ms
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _spendings() -> list[BudgetSpending]:
    for budget in Budget.objects.filter(spending=None):
        BudgetSpending.objects.get_or_create(budget=budget)
    return list(BudgetSpending.objects.select_for_update(of=("self",)).select_related("budget__tenant"))


class _BudgetLedger:
    """One budget in one run. Mutable: its stored windows."""

    def __init__(self, stored: BudgetSpending) -> None:
        self.budget = stored.budget
        self._stored = stored
        self._windows: dict[str, dict[str, Any]] = stored.windows
        self._changed = False

    def take(self, entry: UsageEntry, journal: str, at_ms: int) -> None:
        """Count an entry of its key or tenant."""
        budget = self.budget
        if entry.key_id != budget.key_id if budget.key_id else entry.tenant_id != budget.tenant.slug:
            return
        # A window that is not known yet is summed from the ledger, which has this entry by then.
        window = self._windows.get(str(window_start(budget.window, at_ms)))
        if window is None:
            return
        self._changed = True
        if entry.budget == budget.slug:
            window["rejected" if entry.outcome == OVER_BUDGET else "would_reject"] += 1
        units = entry.charge if budget.unit == BudgetUnit.DOLLARS else entry.prompt + entry.output
        window["spent"] += units
        window["by"][journal] = window["by"].get(journal, 0) + units
        spend(window["held"], journal, units)

    def confirm(self, journal: str, version: int) -> None:
        """Take the report of a gateway that it enforces the state with this version."""
        for window in self._windows.values():
            confirm(window["held"], journal, version)

    def settle(self, now: datetime, live: Sequence[str], version: int) -> BudgetState:
        """Divide what is left of this window and the next one, record a notice if it is used up, and store all."""
        budget, amount = self.budget, self.budget.units
        start = window_start(budget.window, int(now.timestamp() * 1000))
        following = window_end(budget.window, start)
        # In a window without parts of its own, gateways enforce the last parts of a later window.
        last = self._windows.get(max(self._windows, key=int, default=""), {}).get("granted", {})
        for name in [name for name in self._windows if int(name) < start]:
            del self._windows[name]
        current, later = self._window(start, last), self._window(following, last)
        for window in (current, later):
            self._changed |= divide(window["held"], amount - window["spent"], amount, live, window["by"], version)
        later["granted"] = _newest(later["held"])
        self._notice(current["spent"], start, now)
        if self._changed:
            self._stored.save()
        return BudgetState(start, current["spent"], _newest(current["held"]), _newest(later["held"]))

    def _window(self, start: int, granted: Mapping[str, int]) -> dict[str, Any]:
        window = self._windows.get(str(start))
        if window is None:
            self._changed = True
            held = {journal: [[0, units]] for journal, units in granted.items()}
            window = {"spent": spent_in(self.budget, start), "by": {}, "held": held, "rejected": 0, "would_reject": 0}
            self._windows[str(start)] = window
        return window

    def _notice(self, spent: int, start: int, now: datetime) -> None:
        stored, budget = self._stored, self.budget
        if spent < budget.units or stored.noticed_window == start:
            return
        stored.noticed_window, self._changed = start, True
        waits = budget.window == BudgetWindow.MINUTE and stored.noticed_at and now - stored.noticed_at < NOTICE_EVERY
        if not waits:
            stored.noticed_at = now
            after = {"spent": spent, "amount": budget.units, "unit": budget.unit, "mode": budget.mode}
            audit.record(ACTOR, "budget.reached", "budget", budget.slug, after=after)


def _newest(held: Held) -> dict[str, int]:
    return {journal: parts[-1][1] for journal, parts in held.items() if parts}


def spent_in(budget: Budget, start_ms: int) -> int:
    """Return what the ledger has of the budget's key or tenant in the window that begins at `start_ms`."""
    start, end = (datetime.fromtimestamp(at / 1000, UTC) for at in (start_ms, window_end(budget.window, start_ms)))
    of = {"key_id": budget.key_id} if budget.key_id else {"tenant": budget.tenant.slug}
    if budget.window == BudgetWindow.MINUTE:
        rows, units = UsageMinute.objects.filter(minute=start, **of), F("tokens")
    else:
        rows, units = (
            UsageDay.objects.filter(day__gte=start.date(), day__lt=end.date(), **of),
            F("prompt_tokens") + F("output_tokens"),
        )
    total = rows.aggregate(units=Sum("charge" if budget.unit == BudgetUnit.DOLLARS else units))["units"]
    return int(total or 0)
