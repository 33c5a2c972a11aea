"""Retries are limited to a share of active requests, with a small minimum."""

from __future__ import annotations

from gateway.pools.pool.retry_budget import RetryBudget


def test_three_retries_are_always_allowed() -> None:
    budget = RetryBudget()
    budget.enter()
    assert [budget.take() for _ in range(4)] == [True, True, True, False]


def test_a_fifth_of_many_requests_can_retry() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.enter()
    assert sum(budget.take() for _ in range(100)) == 20


def test_a_request_that_ends_returns_its_share() -> None:
    budget = RetryBudget(least=1)
    budget.enter()
    budget.enter()
    assert budget.take()
    assert not budget.take()
    budget.leave(retried=True)
    assert budget.take()
    budget.leave(retried=True)
    assert (budget.active, budget.retrying) == (0, 0)
