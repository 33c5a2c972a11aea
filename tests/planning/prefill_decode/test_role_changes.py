from planning.prefill_decode.role_changes import role_to_drain, roles_to_add
from tests.planning.pools import engine


def members(prefill: int, decode: int, mixed: int = 0) -> list:
    counts = (("prefill", prefill), ("decode", decode), ("mixed", mixed))
    return [engine(f"{role}-{at}", role=role) for role, count in counts for at in range(count)]


def test_a_pool_without_roles_gets_mixed_engines() -> None:
    assert roles_to_add(2, members(0, 0, 3), 2.0) == ("mixed", "mixed")
    assert role_to_drain(members(0, 0, 3), 2.0) is None


def test_the_busier_side_gets_the_first_engine_and_the_other_side_loses_one() -> None:
    assert roles_to_add(1, members(4, 4), 1.5) == ("decode",)
    assert roles_to_add(1, members(4, 4), 0.6) == ("prefill",)
    assert role_to_drain(members(4, 4), 1.5) == "prefill"
    assert role_to_drain(members(4, 4), 0.6) == "decode"


def test_many_new_engines_are_distributed_by_relief() -> None:
    assert sorted(roles_to_add(4, members(4, 4), 1.1)) == ["decode", "decode", "prefill", "prefill"]


def test_no_role_is_emptied_and_an_empty_one_is_filled() -> None:
    assert role_to_drain(members(1, 4), 3.0) == "decode"
    assert roles_to_add(1, members(0, 3), None) == ("prefill",)
