from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvstore.index.prefix_index import ENTRY_BYTES, PrefixIndex
from kvstore.keys.block_keys import token_block_keys

TARGETS = st.integers(0, 5)
PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


class IndexAgainstSets(RuleBasedStateMachine):
    """The index must agree with one plain set of keys per target."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.held: dict[int, set[int]] = {target: set() for target in range(6)}

    @rule(holder=TARGETS, prompt=PROMPTS)
    def store(self, holder: int, prompt: list[int]) -> None:
        keys = token_block_keys(1, prompt, 1)
        self.index.store(holder, keys)
        self.held[holder] |= set(keys)

    @rule(holder=TARGETS, prompt=PROMPTS)
    def remove_the_last_block(self, holder: int, prompt: list[int]) -> None:
        keys = token_block_keys(1, prompt, 1)[-1:]
        self.index.remove(holder, keys)
        self.held[holder] -= set(keys)

    @rule(holder=TARGETS)
    def clear(self, holder: int) -> None:
        self.index.clear(holder)
        self.held[holder] = set()

    @rule(prompt=PROMPTS, among=st.integers(0, 63))
    def match(self, prompt: list[int], among: int) -> None:
        keys = token_block_keys(1, prompt, 1)
        match = self.index.match(keys, among)
        for target in range(6):
            expected = 0
            while among >> target & 1 and expected < len(keys) and keys[expected] in self.held[target]:
                expected += 1
            assert match.blocks(target) == expected
        depths = [blocks for blocks, _ in match.groups]
        assert depths == sorted(set(depths), reverse=True)
        assert match.longest == max(depths, default=0)

    @invariant()
    def it_checks(self) -> None:
        self.index.check()
        assert len(self.index) == len(set().union(*self.held.values()))


TestIndexAgainstSets = IndexAgainstSets.TestCase
TestIndexAgainstSets.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), max_size=40))
def test_the_index_never_exceeds_its_budget(prompts: list[list[int]]) -> None:
    index = PrefixIndex(max_bytes=10 * ENTRY_BYTES)
    for prompt in prompts:
        index.store(0, token_block_keys(1, prompt, 1))
        index.check()
        assert len(index) <= 10


def test_the_longest_untouched_keys_are_evicted_first_and_leaves_before_parents() -> None:
    index = PrefixIndex(max_bytes=4 * ENTRY_BYTES)
    first, second = token_block_keys(1, [1, 2], 1), token_block_keys(1, [3, 4], 1)
    index.store(0, first)
    index.store(0, second)
    index.touch(first)
    index.store(0, token_block_keys(1, [5], 1))
    assert index.match(first, 1).blocks(0) == 2
    assert index.match(second, 1).blocks(0) == 1
    assert index.evicted == 1
