"""Events of tiers below engine memory, in the forms of vLLM, SGLang and LMCache."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.pools.events.event_ledger import EXACT
from kvstore.index.lower_tiers import CPU, DISK, EXTERNAL
from kvstore.keys.block_keys import token_block_keys
from tests.gateway.pools.events.held_keys import Held
from tests.gateway.pools.events.test_event_ledger import BLOCK, SEED, SETTINGS, ledger, replay, seed_of

TOKENS = list(range(8))
HASHES = [71, 72, 73, 74]
KEYS = token_block_keys(SEED, TOKENS, BLOCK)
GPU = {
    "type": "BlockStored", "block_hashes": HASHES, "parent_block_hash": None, "token_ids": TOKENS, "block_size": BLOCK,
    "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0, "kv_cache_spec_kind": "full_attention",
}  # fmt: skip
GONE = {"type": "BlockRemoved", "block_hashes": HASHES, "medium": "GPU", "group_idx": 0}


def offloaded(*hashes: int, medium: str = "CPU", **fields: object) -> dict[str, object]:
    """Return a store event of vLLM's OffloadingConnector in its default form, which has only hashes."""
    return {
        "type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": None, "token_ids": [],
        "block_size": 0, "lora_id": None, "medium": medium, "lora_name": None, "group_idx": 0, **fields,
    }  # fmt: skip


def fed(*batches: list[object], max_blocks: int = 0) -> Held:
    """Return the stored blocks after the batches, and check the ledger's state."""
    held = Held()
    book = ledger(held, replace(SETTINGS, max_blocks=max_blocks) if max_blocks else SETTINGS)
    replay(book, [])
    for number, events in enumerate(batches):
        book.live(number, msgspec.msgpack.encode([0.0, events, 0]))
        book.check()
    assert book.trust.grade == EXACT
    assert {tier: set(book.tiers.keys(tier)) for tier in held.tiers} == held.tiers
    return held


def test_vllm_moves_blocks_to_cpu_memory_and_back() -> None:
    away = [[GPU, *[offloaded(item) for item in HASHES]], [GONE]]
    held = fed(*away)
    assert (held.keys, held.tiers) == (set(), {CPU: set(KEYS)})
    held = fed(*away, [GPU])
    assert (held.keys, held.tiers[CPU]) == (set(KEYS), set(KEYS))
    held = fed(*away, [{**GONE, "block_hashes": HASHES[2:], "medium": "CPU"}])
    assert held.tiers == {CPU: set(KEYS[:2])}


def test_an_unknown_hash_without_tokens_is_ignored() -> None:
    assert fed([offloaded(*HASHES)]).tiers == {CPU: set()}
    assert fed([GPU], [GONE], [offloaded(*HASHES)]).tiers == {CPU: set()}


def test_vllm_events_with_tokens_are_keyed_by_them() -> None:
    described = {**GPU, "medium": "STORAGE", "locality": "LOCAL", "extra_keys": None}
    assert fed([described]).tiers == {DISK: set(KEYS)}
    assert fed([{**described, "locality": "REMOTE"}]).tiers == {EXTERNAL: set(KEYS)}
    tail = {**described, "block_hashes": [75], "token_ids": [8, 9], "parent_block_hash": 74}
    assert fed([described, tail]).tiers == {DISK: set(token_block_keys(SEED, range(10), BLOCK))}
    twice = fed([described, described, {**GONE, "medium": "STORAGE"}])
    assert twice.tiers == {DISK: set(KEYS)}, "chunks announce shared blocks once each"


def test_a_salt_omitted_by_offloading_is_not_guessed() -> None:
    salted = {**GPU, "extra_keys": [["cache_salt", "s"], None, None, None]}
    keys = set(token_block_keys(seed_of("s"), TOKENS, BLOCK))
    assert fed([salted, {**GPU, "medium": "CPU", "extra_keys": None}]).tiers == {CPU: keys}, "known by its hashes"
    other = {**GPU, "medium": "CPU", "block_hashes": [1, 2, 3, 4], "extra_keys": None}
    assert fed([salted, other]).tiers == {CPU: set()}


def test_sglang_sends_tokens_and_parents_for_host_memory() -> None:
    page = {
        "type": "BlockStored", "parent_block_hash": None, "block_size": BLOCK, "lora_id": None, "medium": "CPU_PINNED",
    }  # fmt: skip
    pages = [
        {**page, "block_hashes": [-5], "token_ids": TOKENS[:2]},
        {**page, "block_hashes": [-6], "token_ids": TOKENS[2:4], "parent_block_hash": -5},
    ]
    assert fed(pages).tiers == {CPU: set(KEYS[:2])}
    removed = {"type": "BlockRemoved", "block_hashes": [-6], "medium": "CPU_PINNED"}
    assert fed(pages, [removed]).tiers == {CPU: {KEYS[0]}}
    arrays = [["BlockStored", [-5], None, TOKENS[:2], BLOCK, None, "EXTERNAL"], ["BlockRemoved", [-5], "CPU_PINNED"]]
    assert fed(pages, arrays).tiers == {CPU: {KEYS[1]}, EXTERNAL: {KEYS[0]}}


def test_an_lmcache_chunk_represents_all_its_blocks() -> None:
    chunk = {**GPU, "block_hashes": [b"c" * 8], "block_size": 8, "medium": "cpu", "group_idx": None}
    assert fed([chunk]).tiers == {CPU: set(KEYS)}
    more = {**chunk, "block_hashes": [b"d" * 8], "parent_block_hash": b"c" * 8, "token_ids": list(range(8, 16))}
    assert fed([chunk, more]).tiers == {CPU: set(token_block_keys(SEED, range(16), BLOCK))}
    gone = {"type": "BlockRemoved", "block_hashes": [b"c" * 8], "medium": "cpu"}
    assert fed([chunk, more], [gone]).tiers == {CPU: set(token_block_keys(SEED, range(16), BLOCK)[4:])}
    assert fed([{**chunk, "block_size": 7}]).tiers == {CPU: set()}


def test_clearing_empties_every_tier() -> None:
    described = {**GPU, "medium": "DISK"}
    assert fed([GPU, offloaded(*HASHES), described], [{"type": "AllBlocksCleared"}]).tiers == {}


def test_an_unknown_medium_is_ignored() -> None:
    held = fed([GPU, offloaded(*HASHES, medium="QUANTUM")], [GONE, {**GPU, "medium": "QUANTUM"}])
    assert (held.keys, held.tiers) == (set(), {})


def test_tiers_of_hybrid_models_are_not_used() -> None:
    window = {**GPU, "group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 4}
    assert fed([GPU, window, offloaded(*HASHES)]).tiers == {}
    assert fed([{**GPU, "medium": "CPU"}], [GPU, window]).tiers == {}


def test_a_tier_is_bounded_and_evicted_blocks_are_forgotten() -> None:
    described = {**GPU, "medium": "CPU"}
    blocks = [{**described, "block_hashes": [number], "token_ids": [number, number]} for number in range(200)]
    held = fed(*[[block] for block in blocks], max_blocks=16)
    assert held.tiers == {CPU: {token_block_keys(SEED, [number, number], BLOCK)[0] for number in range(184, 200)}}


@given(st.lists(st.tuples(st.sampled_from(["CPU", "DISK", "GPU"]), st.booleans(), st.integers(0, 5)), max_size=60))
def test_counts_stay_consistent_under_any_events(moves: list[tuple[str, bool, int]]) -> None:
    events: list[list[object]] = []
    for medium, is_store, number in moves:
        one = {**GPU, "medium": medium, "block_hashes": [number], "token_ids": [number % 3] * 2}
        events.append([one if is_store else {**GONE, "medium": medium, "block_hashes": [number]}])
    fed(*events, max_blocks=4)
