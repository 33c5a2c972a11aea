from bench.regions import diurnal_capacity
from bench.regions.policies import CASES, CLAIMS, SEEDS
from simulator.regions.policies import POLICIES
from simulator.regions.region_report import RegionReport
from simulator.regions.workloads import WORKLOADS


def test_every_claim_names_runnable_cases_and_has_a_unique_key() -> None:
    assert len({claim.key for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert {claim.policy, claim.over or claim.policy} <= POLICIES.keys()
        assert {claim.case, claim.over_case or claim.case} <= CASES.keys()
        assert claim.field in RegionReport.__struct_fields__
    assert {case["workload"] for case in CASES.values()} == WORKLOADS.keys()


def test_claims_are_measured_on_seeds_not_used_for_tuning() -> None:
    assert len(SEEDS) >= 5
    assert min(SEEDS) > 7


def test_regions_with_opposite_days_save_much_and_equal_ones_almost_nothing() -> None:
    same = diurnal_capacity.savings((0.0, 0.0, 0.0), (4.0, 10.0), 1)[0]
    apart = diurnal_capacity.savings((0.0, 8.0, 16.0), (4.0, 10.0), 1)[0]
    assert 0 <= same < 0.06
    assert apart > 0.3
