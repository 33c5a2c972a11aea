"""Enforces budgets of API keys and tenants at this gateway.

The control plane grants each journal a part of what is left of a budget, and the parts never sum up to more. Within its
part, a gateway counts what it spends itself, so that it admits nothing once the part is spent; requests in flight can
exceed it. Call all methods on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from gateway.base.metric_families import CounterFamily
from gateway.contracts.snapshot import ApiKeyEntry, BudgetEntry
from gateway.server.http.openai_error import ApiError
from gateway.usage.usage_messages import (
    DOLLARS,
    HARD,
    NANO,
    SOFT,
    BudgetState,
    UsageEntry,
    UsageState,
    window_end,
    window_start,
)

CUT_OFF_MS = 100_000
"""Time without a new state after which a gateway spends nothing more if others may have got its part."""
MAX_BLOCKS = 512
_RETRY_S = 1.0
_NOTHING = UsageState(0, {}, {})


class UnappliedSpending:
    """What this gateway has spent of one budget since the mark, in blocks of consecutive entries.

    Mutable: `blocks` of [last number, window, amount], and their totals by window.
    """

    def __init__(self) -> None:
        self.blocks: list[list[int]] = []
        self.totals: dict[int, int] = {}

    def add(self, number: int, window: int, amount: int, begin: int) -> None:
        """Add an entry's amount. A block is extended only by entries above `begin`, which are not sent yet."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and last[1] == window and (last[0] > begin or len(self.blocks) >= MAX_BLOCKS):
            last[0], last[2] = number, last[2] + amount
        else:
            self.blocks.append([number, window, amount])
        self.totals[window] = self.totals.get(window, 0) + amount

    def applied(self, mark: int) -> None:
        """Remove the blocks up to the mark."""
        while self.blocks and self.blocks[0][0] <= mark:
            _, window, amount = self.blocks.pop(0)
            self.totals[window] -= amount
            if not self.totals[window]:
                del self.totals[window]


class KeyBudgets:
    """Budgets of this gateway's snapshot. Mutable: the budgets by key, the latest state, and unapplied spending."""

    def __init__(self, rejections: CounterFamily, clock_ms: Callable[[], int]) -> None:
        self._rejections = rejections
        self._clock_ms = clock_ms
        self._journal = ""
        self._of_key: dict[str, tuple[BudgetEntry, ...]] = {}
        self._unapplied: dict[str, UnappliedSpending] = {}
        self._state = _NOTHING
        self._state_ms = 0
        self.sent = 0
        """Highest number that was sent to the control plane."""

    @property
    def version(self) -> int:
        """Return the version of the state that is enforced."""
        return self._state.version

    @property
    def mark(self) -> int:
        """Return the mark of this gateway's journal."""
        return self._state.marks.get(self._journal, 0)

    def take_budgets(self, budgets: Sequence[BudgetEntry], keys: Sequence[ApiKeyEntry]) -> None:
        """Enforce the budgets of a snapshot."""
        of_key: dict[str, tuple[BudgetEntry, ...]] = {}
        for key in keys if budgets else ():
            own = tuple(item for item in budgets if key.key_id == item.key_id or key.tenant_id == item.tenant_id)
            if own:
                of_key[key.key_id] = own
        self._of_key = of_key
        known = {budget.budget_id for budget in budgets}
        self._unapplied = {name: kept for name, kept in self._unapplied.items() if name in known}

    def take_state(self, state: UsageState, journal: str) -> None:
        """Enforce the control plane's state."""
        self._state, self._journal, self._state_ms = state, journal, self._clock_ms()
        for unapplied in self._unapplied.values():
            unapplied.applied(self.mark)

    def spend(self, entry: UsageEntry) -> None:
        """Count the entry toward the budgets of its key."""
        for budget in self._of_key.get(entry.key_id, ()):
            amount = entry.charge if budget.unit == DOLLARS else entry.prompt + entry.output
            if amount:
                unapplied = self._unapplied.setdefault(budget.budget_id, UnappliedSpending())
                unapplied.add(entry.number, window_start(budget.window, entry.at_ms), amount, self.sent)

    def exhausted(self, key: ApiKeyEntry) -> tuple[BudgetEntry | None, list[BudgetEntry]]:
        """Return (the hard budget that rejects a request of this key, the shadow budgets that would)."""
        budgets = self._of_key.get(key.key_id)
        if budgets is None:
            return None, []
        now_ms, shadows = self._clock_ms(), list[BudgetEntry]()
        for budget in budgets:
            budget_state = self._state.budgets.get(budget.budget_id)
            # A new budget counts from the control plane's first state on.
            if budget.mode == SOFT or budget_state is None or self._left(budget, budget_state, now_ms) > 0:
                continue
            self._rejections.inc(budget.budget_id, budget.mode)
            if budget.mode == HARD:
                return budget, shadows
            shadows.append(budget)
        return None, shadows

    def rejection(self, budget: BudgetEntry) -> ApiError:
        """Return the 429 that names the budget and the time of its reset."""
        now_ms = self._clock_ms()
        start = window_start(budget.window, now_ms)
        end = window_end(budget.window, start)
        budget_state = self._state.budgets[budget.budget_id]
        spent = (budget_state.spent if budget_state.window == start else 0) + self._spent_here(budget, start)
        resets = datetime.fromtimestamp(end / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        allows = f"The budget {budget.budget_id} allows {amount_words(budget)} per {budget.window}"
        if spent < budget.amount:
            # The rest belongs to other gateways, whose requests may leave some of it.
            text = f"{allows}. This gateway has used its part; retry after 1 s, or raise the budget."
            return ApiError(429, text, "budget_exceeded", retry_after_s=_RETRY_S)
        text = f"{allows}, which is used up. It resets at {resets}; raise the budget to continue before that."
        return ApiError(429, text, "budget_exceeded", retry_after_s=(end - now_ms) / 1000)

    def used(self) -> dict[str, float]:
        """Return the used share of each budget with a state, 1 at its amount, as far as this gateway knows it."""
        now_ms, used = self._clock_ms(), dict[str, float]()
        for budget in {item.budget_id: item for own in self._of_key.values() for item in own}.values():
            budget_state = self._state.budgets.get(budget.budget_id)
            if budget_state is not None:
                start = window_start(budget.window, now_ms)
                spent = budget_state.spent if budget_state.window == start else 0
                used[budget.budget_id] = (spent + self._spent_here(budget, start)) / budget.amount
        return used

    def _left(self, budget: BudgetEntry, budget_state: BudgetState, now_ms: int) -> int:
        """Return what this gateway may still spend."""
        if now_ms - self._state_ms > CUT_OFF_MS and len(budget_state.grants) > 1:
            return 0
        start = window_start(budget.window, now_ms)
        grants = budget_state.later if start > budget_state.window else budget_state.grants
        return grants.get(self._journal, 0) - self._spent_here(budget, start)

    def _spent_here(self, budget: BudgetEntry, start: int) -> int:
        unapplied = self._unapplied.get(budget.budget_id)
        return 0 if unapplied is None else unapplied.totals.get(start, 0)


def amount_words(budget: BudgetEntry) -> str:
    """Return a budget's amount in words, for example 1,000,000 tokens."""
    return f"${budget.amount / NANO:,.2f}" if budget.unit == DOLLARS else f"{budget.amount:,} tokens"
