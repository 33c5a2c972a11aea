"""What came of a promotion, from recorded requests."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.advice.measuring import SPAN, is_due, live_figures, measure
from controlplane.advice.models.advice_proposal import AdviceProposal
from controlplane.advice.proposals import promoted
from controlplane.fleet.models.pool import Pool
from gateway.bus.bus import Bus
from planning.adviser.autopilot import HoldbackCounts
from planning.adviser.prediction import ON_TIME, ON_TIME_TOKENS, REJECTED, TTFT_MEAN
from tests.controlplane.advice.scene import ACTOR, live_pool, moment, proposed
from tests.controlplane.request_log.recordings.traffic import START, record, row

pytestmark = pytest.mark.django_db


def test_live_figures_are_defined_as_predictions_define_them() -> None:
    rows = [
        *(row(number, first_token_after_s=1.0, finished_after_s=3.0, output_tokens=21) for number in range(60)),
        *(row(number, late=True, first_token_after_s=3.0, prompt_tokens=4500, cached_tokens=0) for number in range(20)),
        *(row(0, outcome="rejected", late=True, first_token_after_s=None, cached_tokens=None) for _ in range(20)),
        # No evidence about a policy.
        *(row(0, outcome="cancelled", late=False) for _ in range(50)),
    ]
    made = live_figures(rows)
    assert made is not None
    figures = made.figures
    assert figures[ON_TIME] == pytest.approx(0.6)
    assert figures[ON_TIME_TOKENS] == pytest.approx(60 * 1500 / (80 * 1500 + 20 * 4500))
    assert figures[REJECTED] == pytest.approx(0.2)
    assert figures[TTFT_MEAN] == pytest.approx(1.5)
    assert figures["tpot_p90_s"] == pytest.approx(0.1)
    assert figures["hits"] == pytest.approx(60 * 512 / (60 * 1500 + 20 * 4500))
    assert live_figures(rows[:99]) is None


def test_a_promotion_is_measured_once_after_an_hour(pool: Pool, bus: Bus) -> None:
    made = proposed(live_pool(pool))
    assert made.version is not None
    at = moment(START + 7200)
    promoted(made, at, HoldbackCounts(400, 40, 400, 120), actor=ACTOR, reason="")
    sides = ((START + 3600, made.base.number, 2, 2.0), (START + 7200, made.version.number, 4, 1.0))
    before, after = (
        [
            row(
                0,
                arrived_at=begin + 20 * number,
                policy_version=version,
                late=number % every == 0,
                first_token_after_s=s,
            )
            for number in range(180)
        ]
        for begin, version, every, s in sides
    )
    # Decided by another version, and so of neither side.
    other = [row(0, arrived_at=START + 7300, policy_version=9, first_token_after_s=50.0)]
    record(before)
    record(after + other)
    made = AdviceProposal.objects.select_related("pool", "base", "version", "canary").get(pk=made.pk)
    assert not is_due(made, at + SPAN - timedelta(seconds=1))
    assert is_due(made, at + SPAN)
    assert measure(made, HoldbackCounts(400, 60, 400, 120), at + SPAN) == 4
    stored = {item.objective: item for item in made.predictions.all()}
    assert stored[ON_TIME].measured == pytest.approx(0.25)
    assert stored[TTFT_MEAN].measured == pytest.approx(-0.5)
    assert stored[ON_TIME].against_holdback == pytest.approx(-0.05)
    assert stored[TTFT_MEAN].against_holdback is None
    assert not is_due(made, at + SPAN)


def test_without_recorded_traffic_nothing_is_measured(pool: Pool, bus: Bus) -> None:
    made = proposed(live_pool(pool))
    at = moment(START)
    promoted(made, at, HoldbackCounts(), actor=ACTOR, reason="")
    assert measure(made, HoldbackCounts(), at + SPAN) == 0
    assert set(made.predictions.values_list("measured", flat=True)) == {None}
