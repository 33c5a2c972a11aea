"""Every verdict follows from its figures: planted ones just inside and just outside each limit give other verdicts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.bench.evidence.planted import (  # noqa: F401  # each adds its plants
    dualmap_plants,
    lbgr_plants,
    mooncake_plants,
    our_plants,
    session_plants,
    skywalker_plants,
)
from tests.bench.evidence.planted.plants import PLANTS, Plant, close, rules, rules_of

CASES = [
    pytest.param(item, figures, verdict, id=f"{item.rule}-{figures}")
    for item in PLANTS
    for figures, verdict in item.chain
]


@pytest.mark.parametrize(("item", "figures", "verdict"), CASES)
def test_planted_figures_give_their_verdict(
    item: Plant, figures: Any, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patch(module: object, **names: object) -> None:
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)

    assert item.judge(patch, figures)["verdict"] == verdict


def test_every_rule_has_figures_for_each_verdict_that_it_can_return() -> None:
    planted: dict[str, set[str]] = {}
    for item in PLANTS:
        planted.setdefault(item.rule, set()).update(verdict for _, verdict in item.chain)
    assert planted == rules()


def test_verdicts_change_between_close_figures() -> None:
    far = [
        (item.rule, before, after)
        for item in PLANTS
        for (before, one), (after, other) in pairwise(item.chain)
        if one != other and not close(before, after)
    ]
    assert not far


def test_rule_without_figures_would_be_noticed() -> None:
    source = """
def new(x): return {"verdict": judged(reproduced=x > 1, partly=x > 0)}
def never(x): return {"verdict": judged(reproduced=False, partly=x > 0)}
def by_another(x): return new(x) | {"more": 1}
def figure(x): return {"value": x}
"""
    every = {"reproduced", "partly", "not reproduced"}
    assert rules_of(source) == {"new": every, "never": every - {"reproduced"}, "by_another": every}
