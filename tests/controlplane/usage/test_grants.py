"""In random histories of several gateways, parts never sum up to more than what is left."""

from __future__ import annotations

import random

import pytest

from controlplane.usage.grants import Held, confirm, divide, spend

AMOUNT = 10_000


class Gateway:
    """Spends only within its part, and learns of states late."""

    def __init__(self) -> None:
        self.version = 0
        self.left = 0
        self.unsent = 0

    def learn(self, version: int, part: int) -> None:
        self.version, self.left = version, part - self.unsent


@pytest.mark.parametrize("seed", range(20))
def test_gateways_that_learn_late_spend_no_more_than_the_amount(seed: int) -> None:
    rng = random.Random(seed)
    held: Held = {}
    gateways = {name: Gateway() for name in "abc"}
    spent, by = 0, dict.fromkeys(gateways, 0)
    for version in range(1, 400):
        name = rng.choice(list(gateways))
        gateway = gateways[name]
        # It spends in its part only; several requests may end before the next report.
        if gateway.left > 0 and rng.random() < 0.8:
            units = rng.randint(1, min(300, gateway.left))
            gateway.left -= units
            gateway.unsent += units
        if rng.random() < 0.5:
            spend(held, name, gateway.unsent)
            spent, by[name], gateway.unsent = spent + gateway.unsent, by[name] + gateway.unsent, 0
            confirm(held, name, gateway.version)
            divide(held, AMOUNT - spent, AMOUNT, list(gateways), by, version)
        for other, parts in held.items():
            # States arrive in order but late, and each is relative to what is applied.
            if rng.random() < 0.3:
                gateways[other].learn(version, parts[-1][1])
        granted = sum(max((units for _, units in parts), default=0) for parts in held.values())
        assert spent + granted <= AMOUNT
        assert spent + sum(gateway.unsent + max(0, gateway.left) for gateway in gateways.values()) <= AMOUNT
    assert spent > AMOUNT * 0.8


def test_one_gateway_gets_all_that_is_left() -> None:
    held: Held = {}
    assert divide(held, 700, 1000, ["a"], {}, 1)
    assert held == {"a": [[1, 700]]}
    spend(held, "a", 100)
    assert not divide(held, 600, 1000, ["a"], {"a": 400}, 2)


def test_a_lowered_part_is_held_until_it_is_confirmed() -> None:
    held: Held = {}
    divide(held, 1000, 1000, ["a"], {}, 1)
    divide(held, 1000, 1000, ["a", "b"], {}, 2)
    assert held == {"a": [[1, 1000], [2, 500]], "b": [[2, 0]]}
    confirm(held, "a", 2)
    divide(held, 1000, 1000, ["a", "b"], {}, 3)
    assert held["b"][-1] == [3, 500]


def test_small_parts_end_when_another_gateway_exceeded_its_part() -> None:
    held: Held = {"a": [[1, 20]], "b": [[1, 0]]}
    assert divide(held, 0, 1000, ["a", "b"], {}, 2)
    assert held["a"][-1] == [2, 0]
