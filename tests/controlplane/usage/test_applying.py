"""Each entry of each journal counts once, and budgets follow the ledger."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.db.models import Sum

from controlplane.fleet.topology import create_tenant
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.usage.applying import apply_batches
from controlplane.usage.budgets import change_budget, create_budget
from controlplane.usage.models.budget import Budget
from controlplane.usage.models.usage_rows import JournalMark, UsageDay, UsageMinute
from gateway.usage.usage_messages import HARD, MINUTE, OVER_BUDGET, WOULD_REJECT
from tests.controlplane.usage.batches import NOW, batch, entry

pytestmark = pytest.mark.django_db
ACTOR = program("test")


def day_sum(name: str) -> int:
    return int(UsageDay.objects.aggregate(total=Sum(name))["total"] or 0)


def budget(**fields: object) -> Budget:
    tenant = create_tenant("acme", "Acme", actor=ACTOR)
    known = {"slug": "b", "tenant": tenant, "amount": 1000, "mode": HARD, "window": "day", "unit": "tokens"}
    return create_budget(actor=ACTOR, **{**known, **fields})


def test_outcomes_are_counted_apart() -> None:
    entries = [
        entry(1, late=True),
        entry(2, outcome="failed", prompt=0, cached=0, output=0),
        entry(3, outcome="rejected", prompt=0, cached=0, output=0),
        entry(4, outcome=OVER_BUDGET, prompt=0, cached=0, output=0, budget="b"),
        entry(5, outcome=WOULD_REJECT, requests=0, prompt=0, cached=0, output=0, budget="c"),
        entry(6, outcome="interrupted", prompt=0, cached=0, output=0),
        entry(7, outcome="cancelled", prompt=0, cached=0, output=0),
        entry(8, requests=0),
    ]
    state = apply_batches([batch(*entries)], NOW, 1)
    row = UsageDay.objects.get()
    counts = {name: getattr(row, name) for name in ("requests", "late", "failed", "rejected", "over_budget")}
    assert counts == {"requests": 6, "late": 1, "failed": 1, "rejected": 2, "over_budget": 1}
    assert (row.would_reject, row.interrupted, row.client_ended) == (1, 1, 1)
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (200, 80, 20)
    assert state.marks == {"j": 8}


@pytest.mark.parametrize("seed", range(4))
def test_lost_repeated_and_reordered_batches_count_each_entry_once(seed: int) -> None:
    rng = random.Random(seed)
    entries = {journal: [entry(number, prompt=number) for number in range(1, 41)] for journal in "ab"}
    applied = dict.fromkeys(entries, 0)
    sent: list[bytes] = []
    while min(applied.values()) < 40:
        for journal, of_journal in entries.items():
            begin = max(0, applied[journal] - rng.randint(0, 3))
            part = of_journal[begin : begin + rng.randint(1, 9)]
            if part:
                sent.append(batch(*part, journal=journal))
        some = [rng.choice(sent) for _ in range(rng.randint(0, 4))]
        applied |= apply_batches(some, NOW, 1).marks
    assert day_sum("requests") == 80
    assert day_sum("prompt_tokens") == 2 * sum(range(1, 41))


def test_a_batch_after_a_gap_waits_and_a_gap_of_the_journal_does_not() -> None:
    assert apply_batches([batch(entry(5))], NOW, 1).marks == {"j": 0}
    assert apply_batches([batch(entry(5), after=0)], NOW, 1).marks == {"j": 5}


def test_a_restored_ledger_continues_at_the_gateways_mark() -> None:
    apply_batches([batch(entry(1))], NOW, 1)
    assert apply_batches([batch(entry(90), mark=89)], NOW, 1).marks == {"j": 90}


def test_a_failed_transaction_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(JournalMark, "save", _fail)
        apply_batches([batch(entry(1))], NOW, 1)
    assert day_sum("requests") == 0
    apply_batches([batch(entry(1))], NOW, 1)
    assert day_sum("requests") == UsageMinute.objects.get().requests == 1


def _fail(*_args: object, **_named: object) -> None:
    raise RuntimeError


def test_a_budget_counts_what_was_used_before_it_existed() -> None:
    apply_batches([batch(entry(1))], NOW, 1)
    budget()
    budget_state = apply_batches([batch(entry(2))], NOW, 2).budgets["b"]
    assert (budget_state.spent, budget_state.grants) == (220, {"j": 780})
    assert budget_state.later == {"j": 1000}


def test_a_used_up_budget_grants_nothing_and_one_notice_is_recorded() -> None:
    item = budget(amount=150)
    for number in range(1, 5):
        budget_state = apply_batches([batch(entry(number))], NOW + timedelta(seconds=number), number).budgets["b"]
    assert (budget_state.spent, budget_state.grants) == (440, {"j": 0})
    assert AuditEvent.objects.filter(verb="budget.reached", object_id="b").count() == 1
    change_budget(item, {"amount": 500.0}, actor=ACTOR)
    assert apply_batches([batch()], NOW, 9).budgets["b"].grants == {"j": 60}
    tomorrow = apply_batches([batch()], NOW + timedelta(days=1), 10).budgets["b"]
    assert (tomorrow.spent, tomorrow.grants) == (0, {"j": 500})


def test_a_budget_in_dollars_per_minute_of_one_key() -> None:
    item = budget(amount=2.5, unit="dollars", window=MINUTE)
    Budget.objects.filter(pk=item.pk).update(key_id="key-1")
    spent = [entry(1, charge=10**9), entry(2, charge=10**9, key_id="key-2")]
    budget_state = apply_batches([batch(*spent)], NOW, 1).budgets["b"]
    assert (budget_state.spent, budget_state.grants) == (10**9, {"j": 1_500_000_000})


def test_gateways_share_a_budget() -> None:
    budget()
    apply_batches([batch(entry(1), journal="a")], NOW, 1)
    state = apply_batches([batch(journal="b")], NOW, 2)
    assert sum(state.budgets["b"].grants.values()) + state.budgets["b"].spent <= 1000
    state = apply_batches([batch(journal="a", state=state.version), batch(journal="b")], NOW, state.version + 1)
    assert state.budgets["b"].grants["b"] > 0
    assert sum(state.budgets["b"].grants.values()) + state.budgets["b"].spent <= 1000
