import msgspec

from planning.documents.holdback_document import SliceDocument
from planning.trials.comparison import ArmSlice
from planning.trials.holdback import MAX_DOUBLINGS, HoldbackFacts, HoldbackMemory, cool_down_s, plan_holdback, share_of
from tests.planning.arm_data import slices

SETTINGS = SliceDocument(share=0.05, hold_s=10, cool_down_s=60)
BAD = tuple(ArmSlice(slice_.tried, slice_.base) for slice_ in slices(1, 30, 40, 4, slower=0.2))
"""The policy, the greater arm, is five times slower than the rule."""
GOOD = tuple(ArmSlice(slice_.tried, slice_.base) for slice_ in slices(2, 30, 40, 4))


def run(
    seen: tuple[ArmSlice, ...],
    seconds: range,
    memory: HoldbackMemory,
    settings: SliceDocument = SETTINGS,
    *,
    frozen: bool = False,
) -> tuple[list[str], HoldbackMemory]:
    states = []
    for now_s in seconds:
        plan, memory = plan_holdback(HoldbackFacts(float(now_s), seen, seen[-20:], frozen), memory, settings)
        assert plan.share == share_of(memory.state, settings)
        states.append(memory.state)
    return states, memory


def test_without_a_share_there_is_no_slice() -> None:
    states, memory = run(BAD, range(0, 60, 2), HoldbackMemory(), SliceDocument())
    assert set(states) == {"off"}
    _, memory = run(GOOD, range(0, 4, 2), memory)
    assert memory.state == "slice"
    assert run(GOOD, range(4, 6), memory, SliceDocument())[1].state == "off"


def test_a_policy_as_good_as_the_rule_keeps_serving() -> None:
    assert set(run(GOOD, range(0, 300, 5), HoldbackMemory())[0]) == {"slice"}


def test_the_rule_takes_over_only_after_the_policy_has_lost_for_a_while() -> None:
    states, memory = run(BAD, range(0, 14, 2), HoldbackMemory())
    assert states == ["slice"] * 6 + ["fallback"]
    assert memory.doublings == 0
    assert share_of(memory.state, SETTINGS) == 1.0


def test_the_policy_returns_automatically_when_it_does_well_again() -> None:
    _, memory = run(BAD, range(0, 14, 2), HoldbackMemory())
    states, memory = run(GOOD, range(14, 142, 2), memory)
    assert [state for state, before in zip(states, ["", *states], strict=False) if state != before] == [
        "fallback",
        "probing",
        "slice",
    ]


def test_each_loss_soon_after_a_return_waits_longer_up_to_a_limit() -> None:
    memory, changes, last = HoldbackMemory(), 0, "off"
    for now_s in range(0, 6000, 10):
        seen = BAD if memory.state in ("slice", "probing") else GOOD
        _, memory = plan_holdback(HoldbackFacts(float(now_s), seen, seen[-20:]), memory, SETTINGS)
        changes += memory.state != last
        last = memory.state
    assert memory.doublings == MAX_DOUBLINGS
    assert cool_down_s(memory, SETTINGS) == 60 * 16
    assert changes < 30


def test_after_a_calm_period_the_next_wait_is_short_again() -> None:
    memory = HoldbackMemory("slice", 0.0, None, 2)
    _, memory = run(GOOD, range(0, 1100, 50), memory)
    assert memory.doublings == 0


def test_with_fallback_off_or_frozen_the_arms_are_only_compared() -> None:
    only = msgspec.structs.replace(SETTINGS, fall_back=False)
    assert set(run(BAD, range(0, 200, 10), HoldbackMemory(), only)[0]) == {"slice"}
    _, memory = run(BAD, range(0, 14, 2), HoldbackMemory())
    assert set(run(GOOD, range(14, 400, 20), memory, frozen=True)[0]) == {"fallback"}
