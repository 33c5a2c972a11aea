from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvstore.index.prefix_index import PrefixIndex
from kvstore.keys.block_keys import token_block_keys
from routing.ledger.in_flight_blocks import STEP, InFlightBlocks, coming_keys

PROMPTS = st.lists(st.integers(0, 2), max_size=5)
TARGETS = st.integers(0, 3)


class InFlightAgainstLists(RuleBasedStateMachine):
    """Matches must equal the union of resident blocks and blocks added and not removed."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.in_flight = InFlightBlocks(self.index)
        self.resident: dict[int, set[int]] = {target: set() for target in range(4)}
        self.given: list[tuple[int, tuple[int, ...]]] = []

    @rule(holder=TARGETS, prompt=PROMPTS)
    def store(self, holder: int, prompt: list[int]) -> None:
        keys = token_block_keys(1, prompt, 1)
        self.index.store(holder, keys)
        self.resident[holder] |= set(keys)

    @rule(holder=TARGETS, prompt=PROMPTS)
    def add(self, holder: int, prompt: list[int]) -> None:
        keys = token_block_keys(1, prompt, 1)
        self.in_flight.add(holder, keys)
        self.given.append((holder, keys))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        self.in_flight.remove(*self.given.pop(data.draw(st.integers(0, len(self.given) - 1))))

    @rule(prompt=PROMPTS)
    def match(self, prompt: list[int]) -> None:
        keys = token_block_keys(1, prompt, 1)
        match = self.in_flight.match(keys, 0b0111)
        for target in range(3):
            held = self.resident[target].union(*(keys for holder, keys in self.given if holder == target))
            expected = 0
            while expected < len(keys) and keys[expected] in held:
                expected += 1
            assert match.blocks(target) == expected
        assert match.blocks(3) == 0

    @invariant()
    def it_checks(self) -> None:
        self.in_flight.check()
        assert self.given or not len(self.in_flight)


TestInFlightAgainstLists = InFlightAgainstLists.TestCase
TestInFlightAgainstLists.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


LONG_PROMPT = tuple(range(1, 40 * STEP + 11))


@given(st.integers(0, 50 * STEP), st.integers(0, 50 * STEP), st.integers(1, len(LONG_PROMPT)))
def test_in_long_prompts_resident_blocks_are_exact_and_coming_ones_sampled(
    held: int, other: int, given_blocks: int
) -> None:
    index = PrefixIndex()
    in_flight = InFlightBlocks(index)
    held, other = min(held, given_blocks), min(other, len(LONG_PROMPT))
    given = LONG_PROMPT[:given_blocks]
    index.store(0, given[:held])
    index.store(1, LONG_PROMPT[:other])
    keys = coming_keys(given, held)
    in_flight.add(0, keys)
    match = in_flight.match(LONG_PROMPT, 0b11)
    assert match.blocks(1) == other
    if given_blocks >= STEP:
        assert match.blocks(0) >= max(held, given_blocks // STEP * STEP)
    assert match.blocks(0) <= given_blocks
    in_flight.remove(0, keys)
    assert in_flight.match(LONG_PROMPT, 0b11).blocks(0) == held
    in_flight.check()
    assert len(in_flight) == 0


def test_a_prompt_of_128k_tokens_is_recorded_in_few_steps() -> None:
    keys = tuple(range(8192))
    assert len(coming_keys(keys, 0)) == 128
    assert coming_keys(keys, 8000) == (8063, 8127, 8191)
    assert coming_keys(keys, 8192) == ()
    assert coming_keys(keys[:20], 5) == keys[5:20]
