"""Random histories of three gateways: delays, losses, and elections. No request is dispatched twice or left over."""

from __future__ import annotations

from random import Random

import pytest

from routing.values.observation import Completed, Failed, FirstToken
from tests.routing.chain.linked_gateways import LinkedGateway, linked, made


class RandomHistory:
    """Random operations on three gateways. `check` and the gateways raise AssertionError on an inconsistency."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.group = linked("abc", size=3, queue_limit=9)
        self.number = 0

    def step(self) -> None:
        """Do one random operation at a random gateway."""
        gateway = self.group[self.rng.choice("abc")]
        operations = (self.place, self.deliver, self.progress, self.cancel, self.tick, self.elect, self.cut)
        (operation,) = self.rng.choices(operations, (25, 40, 20, 3, 9, 1, 2))
        operation(gateway)

    def place(self, gateway: LinkedGateway) -> None:
        self.number += 1
        excluded = ["e-01"] if self.rng.random() < 0.1 else []
        gateway.place(made(self.number, gateway.tag, self.group), hold=self.rng.random() < 0.9, excluded=excluded)

    def deliver(self, _gateway: LinkedGateway) -> None:
        if pairs := [pair for pair, messages in sorted(self.group.under_way.items()) if messages]:
            self.group.deliver(*self.rng.choice(pairs))

    def progress(self, gateway: LinkedGateway) -> None:
        if gateway.running:
            name = self.rng.choice(sorted(gateway.running))
            gateway.observe(self.rng.choice((FirstToken, Completed, Completed, Failed))(name))

    def cancel(self, gateway: LinkedGateway) -> None:
        if gateway.waiting:
            gateway.observe(Failed(self.rng.choice(sorted(gateway.waiting))))

    def tick(self, gateway: LinkedGateway) -> None:
        self.group.now += self.rng.random() * 0.1
        gateway.tick()

    def elect(self, gateway: LinkedGateway) -> None:
        self.group.elect(gateway.tag)

    def cut(self, _gateway: LinkedGateway) -> None:
        """Restore all connections, or end one; it may be back at once."""
        if self.group.cut and self.rng.random() < 0.5:
            self.group.cut.clear()
            return
        one, other = self.rng.sample("abc", 2)
        self.group.cut_off(one, other)
        if self.rng.random() < 0.5:
            self.group.cut.discard((one, other))

    def end(self) -> None:
        """Let all requests end."""
        group = self.group
        group.cut.clear()
        for _ in range(100):
            group.run(0.2)
            for gateway in group.gateways.values():
                for name in sorted(gateway.running):
                    gateway.complete(name)
            group.deliver_all()
            group.check()


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_dispatch_each_request_once_and_leave_nothing(seed: int) -> None:
    history = RandomHistory(seed)
    for _ in range(600):
        history.step()
        history.group.check()
    history.end()
    for gateway in history.group.gateways.values():
        gateway.check_empty()
