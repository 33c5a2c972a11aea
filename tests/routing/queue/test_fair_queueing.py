import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.policy.fairness_document import FairnessDocument
from routing.queue.fair_queueing import FairShares

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


def shares(max_share: float = 1.0, **weights: float) -> FairShares:
    return FairShares(FairnessDocument(enabled=True, weights=weights, max_share=max_share))


def serve(fair: FairShares, sizes: list[float]) -> dict[str, float]:
    """Serve these sizes, each to the first tenant in the order, while all continue to wait."""
    got: dict[str, float] = {}
    for size in sizes:
        tenant = fair.first(1)[0]
        got[tenant] = got.get(tenant, 0.0) + size
        fair.charge(tenant, size)
        fair.check()
    return got


@given(
    st.dictionaries(NAMES, st.floats(0.1, 10), min_size=2),
    st.lists(st.floats(0.01, 2.0), min_size=1, max_size=200),
    st.sampled_from([1.0, 0.6, 0.4]),
)
def test_in_a_busy_period_service_follows_the_shares_within_one_largest_request(
    weights: dict[str, float], sizes: list[float], max_share: float
) -> None:
    fair = shares(max_share, **weights)
    for tenant in sorted(weights):
        fair.join(tenant)
    got = serve(fair, sizes)
    largest = max(sizes)
    per_share = {tenant: got.get(tenant, 0.0) / fair.share(tenant) for tenant in weights}
    for one in weights:
        for other in weights:
            bound = largest / fair.share(one) + largest / fair.share(other)
            assert abs(per_share[one] - per_share[other]) <= bound * (1 + 1e-9)


def test_a_cap_holds_while_others_wait_and_the_excess_goes_to_them_by_weight() -> None:
    fair = shares(0.5, a=8.0, b=1.0, c=1.0)
    for tenant in "abc":
        fair.join(tenant)
    assert [fair.share(tenant) for tenant in "abc"] == pytest.approx([0.5, 0.25, 0.25])
    fair.leave("c")
    assert [fair.share(tenant) for tenant in "ab"] == pytest.approx([0.5, 0.5])
    fair.leave("b")
    assert fair.share("a") == 1.0
    assert fair.first(3) == ["a"]


def test_idling_earns_no_credit_and_leaving_pays_no_debt() -> None:
    fair = shares()
    fair.join("a")
    serve(fair, [1.0] * 10)
    fair.join("b")
    got = serve(fair, [1.0] * 10)
    assert got["a"] >= 4.0
    fair.charge("b", 50.0)
    fair.leave("b")
    fair.join("b")
    assert serve(fair, [1.0] * 10) == {"a": 10.0}


def test_tenants_that_left_are_eventually_forgotten() -> None:
    fair = shares()
    fair.join("stays")
    for number in range(20_000):
        fair.join(f"guest-{number}")
        fair.charge(f"guest-{number}", 1.0)
        fair.leave(f"guest-{number}")
    assert len(fair._tags) <= 4200
    assert len(fair._heap) <= 2 * len(fair) + 65
    fair.check()


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "charge"]), NAMES), max_size=80))
def test_the_state_is_consistent_under_any_joins_and_leaves(steps: list[tuple[str, str]]) -> None:
    fair, waiting = shares(0.4, a=5.0, b=0.2), set()
    for kind, tenant in steps:
        if kind == "join" and tenant not in waiting:
            fair.join(tenant)
            waiting.add(tenant)
        elif kind == "leave" and tenant in waiting:
            fair.leave(tenant)
            waiting.discard(tenant)
        elif kind == "charge" and tenant in waiting:
            fair.charge(tenant, 1.5)
        fair.check()
        assert set(fair.first(9)) == waiting
