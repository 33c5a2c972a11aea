"""Retries are a share of what is active, with a small floor."""

from __future__ import annotations

from gateway.pool.retry_budget import RetryBudget


def test_three_may_always_retry() -> None:
    budget = RetryBudget()
    budget.enter()
    assert [budget.take() for _ in range(4)] == [True, True, True, False]


def test_a_fifth_of_many_may_retry() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.enter()
    assert sum(budget.take() for _ in range(100)) == 20


def test_a_request_that_ends_gives_its_share_back() -> None:
    budget = RetryBudget(least=1)
    budget.enter()
    budget.enter()
    assert budget.take()
    assert not budget.take()
    budget.leave(retried=True)
    assert budget.take()
    budget.leave(retried=True)
    assert (budget.active, budget.retrying) == (0, 0)
