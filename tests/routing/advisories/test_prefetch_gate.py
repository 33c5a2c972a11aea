import pytest

from routing.advisories.prefetch_gate import prefetch_starts


@pytest.mark.parametrize(
    ("eta_s", "lead_s", "starts"), [(0.5, 11.0, True), (5.0, 11.0, False), (2.0, 1.0, False), (0.0, 11.0, False)]
)
def test_a_prefetch_starts_only_if_it_ends_in_time(eta_s: float, lead_s: float, starts: bool) -> None:
    assert prefetch_starts(eta_s, lead_s) is starts
