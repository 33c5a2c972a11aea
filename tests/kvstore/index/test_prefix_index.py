"""A searched match equals the scanned one if prefixes are held without gaps, with far fewer lookups."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvstore.index.prefix_index import ENTRY_BYTES, PrefixIndex
from kvstore.index.prefix_match import LONG, NO_MATCH, PrefixMatch, search_match, walk_match
from kvstore.index.target_table import TargetTable
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
TestIndexAgainstSets.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


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


def test_a_released_bit_is_reused_only_after_a_sweep() -> None:
    table = TargetTable()
    assert (table.assign("a#1"), table.assign("b#1")) == (0, 1)
    assert table.release("a#1") == 0
    assert table.assign("a#2") == 2
    assert table.sweep() == [0]
    assert table.assign("c#1") == 0
    assert table.release("nobody") is None


@given(st.lists(st.tuples(st.sampled_from(["assign", "release", "sweep"]), st.sampled_from("abcde")), max_size=60))
def test_each_bit_is_always_in_exactly_one_state(steps: list[tuple[str, str]]) -> None:
    table = TargetTable()
    for verb, name in steps:
        if verb == "sweep":
            table.sweep()
        else:
            getattr(table, verb)(name)
        table.check()


LENGTH = 8192


def walked(keys: tuple[int, ...], among: int, held: dict[int, int]) -> PrefixMatch:
    depths: dict[int, int] = {}
    for target in range(among.bit_length()):
        depth = 0
        while among >> target & 1 and depth < len(keys) and held.get(keys[depth], 0) >> target & 1:
            depth += 1
        if depth:
            depths[depth] = depths.get(depth, 0) | 1 << target
    return PrefixMatch(tuple(sorted(depths.items(), reverse=True)))


@given(st.integers(1, 200), st.lists(st.integers(0, 200), max_size=12), st.integers(0, 4095))
def test_a_searched_match_equals_the_walked_one(length: int, depths: list[int], among: int) -> None:
    keys = tuple(range(1000, 1000 + length))
    held: dict[int, int] = {}
    for target, depth in enumerate(depths):
        for key in keys[:depth]:
            held[key] = held.get(key, 0) | 1 << target
    assert search_match(keys, among, lambda key: held.get(key, 0)) == walked(keys, among, held)


def test_a_prompt_of_128k_tokens_needs_few_lookups() -> None:
    keys = tuple(range(1, LENGTH + 1))
    asked: list[int] = []

    def held(key: int) -> int:
        asked.append(key)
        return (key <= 5000) | (key <= 8000) << 1 | 1 << 2

    assert search_match(keys, 0b1111, held).groups == ((LENGTH, 4), (8000, 2), (5000, 1))
    assert len(asked) < 100


def test_the_index_matches_long_prompts_by_search_and_short_ones_by_walk_alike() -> None:
    index = PrefixIndex()
    keys = tuple(range(1, 2 * LONG + 1))
    index.store(0, keys[:10])
    index.store(1, keys[: LONG + 5])
    assert index.match(keys, 0b111).groups == ((LONG + 5, 2), (10, 1))
    assert index.match(keys[:20], 0b111).groups == ((20, 2), (10, 1))
    assert index.match(tuple(range(5000, 5200)), 0b111) is NO_MATCH


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=40),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=40),
    st.integers(0, 15),
)
def test_a_walk_is_exact_even_if_blocks_are_missing(
    length: int, resident: list[tuple[int, int]], coming: list[tuple[int, int]], among: int
) -> None:
    keys = tuple(range(1000, 1000 + length))
    tables: tuple[dict[int, int], dict[int, int]] = ({}, {})
    both: dict[int, int] = {}
    for table, pairs in zip(tables, (resident, coming), strict=True):
        for target, block in pairs:
            # Far beyond the small integers of which Python keeps one object.
            bit = 1 << target + 20
            table[1000 + block] = table.get(1000 + block, 0) | bit
            both[1000 + block] = both.get(1000 + block, 0) | bit
    assert walk_match(keys, among << 20, *tables) == walked(keys, among << 20, both)


def test_blocks_stored_together_share_one_holders_object() -> None:
    index = PrefixIndex()
    keys = tuple(range(1, 21))
    for target in (40, 50):
        index.store(target, keys)
    assert len({id(index.table[key]) for key in keys}) == 1
