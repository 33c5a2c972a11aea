"""The state of a rotation, computed from the secrets of all processes, and the blockers of its next step."""

from __future__ import annotations

import pytest

from controlplane.secret_rotation.holders import Holder, Holders
from controlplane.secret_rotation.rotation import LATELY_S, Rotation, rotations
from gateway.requests.advisories.advisory_token import MAX_LIFETIME_S
from kvstore.keys.held_secrets import HeldSecrets, SecretUse
from kvstore.keys.keyring import FLEET, KV, SESSIONS

NOW = 1_800_000_000.0
LONG_AGO = NOW - 2 * MAX_LIFETIME_S


def held(
    role: str, used: str, also: str = "", *uses: SecretUse, kind: str = FLEET, started_at: float | None = LONG_AGO
) -> Holder:
    return Holder(role, "x", HeldSecrets(kind, used, also, uses), started_at)


def fleet(own: Holder, *others: Holder, silent: tuple[str, ...] = ()) -> Rotation:
    (rotation,) = rotations(Holders(others, silent), [own], NOW)
    return rotation


def test_idle_installation_has_no_rotation() -> None:
    rotation = fleet(held("", "old"), held("gateway", "old"), held("web", "old"))
    assert (rotation.used, rotation.also, rotation.not_installed, rotation.still_needed) == ("old", "", (), ())
    assert rotation.variable == "HEADWAY_FLEET_SECRET"


def test_new_secret_is_not_used_before_every_process_accepts_it() -> None:
    own = held("", "old", "new")
    partly = fleet(own, held("gateway", "old"), held("web", "old", "new"), held("jobs", "old", "other"))
    assert partly.not_installed == ("Do not accept new yet: gateway x, jobs x.",)
    assert fleet(own, held("gateway", "old", "new"), held("web", "new", "old")).not_installed == ()


@pytest.mark.parametrize("late", [("old", "new"), ("old", ""), ("other", "")])
def test_old_secret_stays_required_while_a_process_uses_another_than_the_new_one(late: tuple[str, str]) -> None:
    rotation = fleet(held("", "new", "old"), held("web", "new", "old"), held("gateway", *late))
    assert rotation.still_needed == ("Do not use new yet: gateway x.",)
    assert fleet(held("", "new", "old"), held("web", "new", "old"), held("gateway", "new")).still_needed == ()


@pytest.mark.parametrize(("age_s", "needed"), [(0.0, True), (LATELY_S - 1, True), (LATELY_S, False)])
def test_old_secret_stays_required_while_requests_still_use_it(age_s: float, needed: bool) -> None:
    use = SecretUse("connections to KV nodes", 3, NOW - age_s, "engine-1")
    (rotation,) = rotations(Holders((held("KV node", "new", "old", use, kind=KV),)), [], NOW)
    assert bool(rotation.still_needed) == needed
    if needed:
        assert rotation.still_needed[0].startswith("KV node x accepted connections to KV nodes of engine-1 by old ")


def test_new_secret_accepted_by_a_process_one_step_behind_requires_no_old_one() -> None:
    use = SecretUse("bus messages", 3, NOW, "gateways/b/fleet")
    rotation = fleet(held("", "new", "old"), held("jobs", "old", "new", use))
    assert rotation.still_needed == ("Do not use new yet: jobs x.",)


@pytest.mark.parametrize(("age_s", "needed"), [(0.0, True), (MAX_LIFETIME_S - 1, True), (MAX_LIFETIME_S, False)])
def test_advisory_tokens_of_the_old_secret_outlive_the_last_gateway_that_used_it(age_s: float, needed: bool) -> None:
    gateways = [held("gateway", "new", "old", started_at=at) for at in (LONG_AGO, NOW - age_s)]
    rotation = fleet(held("", "new", "old"), *gateways)
    assert bool(rotation.still_needed) == needed
    if needed:
        assert rotation.still_needed[0].startswith("Advisory tokens that gateways signed with old are valid until ")


def test_process_without_a_response_blocks_either_step() -> None:
    rotation = fleet(held("", "new", "old"), held("web", "new", "old"), silent=("1 of 2 processes did not answer.",))
    assert rotation.not_installed == rotation.still_needed == ("1 of 2 processes did not answer.",)


def test_each_kind_is_evaluated_separately_by_its_own_or_the_most_common_secrets() -> None:
    nodes = [held("KV node", *item, kind=KV) for item in (("a", "b"), ("a", "b"), ("b", "a"))]
    own = [held("", "k", kind=SESSIONS), held("", "f")]
    rotation = rotations(Holders((*nodes, held("web", "k", kind=SESSIONS))), own, NOW)
    assert [(item.kind, item.used, item.also) for item in rotation] == [
        (FLEET, "f", ""), (SESSIONS, "k", ""), (KV, "a", "b"),
    ]  # fmt: skip
    assert rotations(Holders(()), [], NOW) == []
