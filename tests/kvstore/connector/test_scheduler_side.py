"""Blocks that a request loads and stores, and the outcome in its response.

A prefix is offered to the node once, and again when the node may have lost it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvstore.connector.domain_keys import Domain
from kvstore.connector.engine_params import FIELD, KvOutcome, outcome_in
from kvstore.connector.scheduler_side import OfferedBlocks
from kvstore.connector.step_messages import LoadEnd, StepReport
from kvstore.keys.block_keys import extend_key, pack_tokens
from tests.kvstore.connector.engine_blocks import PAYLOAD, TOKENS, chain, progress, request, side

HOLDERS = ["127.0.0.1:1", "127.0.0.1:2"]


def test_an_order_loads_missing_blocks_into_the_engine() -> None:
    scheduler, asked = side(), request("a", load_blocks=3, holders=HOLDERS)
    scheduler.add(asked, "")
    assert scheduler.matched(asked, TOKENS, 0.0) == 2 * TOKENS
    scheduler.allocated(asked, [7, 8, 9, 10, 11], 2 * TOKENS)
    (job,) = scheduler.step([], 0, 0.0).loads
    assert (job.block_ids, job.chain_hashes) == ((8, 9), tuple(chain("p", 4)[1:3]))
    assert list(job.holders) == HOLDERS
    assert scheduler.step([], 0, 0.0).loads == ()


def test_the_last_token_is_always_computed() -> None:
    scheduler, asked = side(), request("a", blocks=4, more_tokens=0, load_blocks=4)
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 0, 0.0) == 3 * TOKENS


def test_blocks_that_the_engine_holds_are_not_loaded() -> None:
    scheduler, asked = side(), request("a", load_blocks=3)
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 3 * TOKENS, 0.0) == 0


@pytest.mark.parametrize("order", [{}, {"load_blocks": 0}, {"load_blocks": 3, "holders": []}])
def test_without_a_load_order_nothing_is_loaded(order: dict[str, object]) -> None:
    scheduler, asked = side(), request("a", **order)  # type: ignore[arg-type]
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 0, 0.0) == 0


@pytest.mark.parametrize("wrong", [{FIELD: {"load_blocks": -1}}, {FIELD: {"keys": "AAAA", "load_blocks": 2}}])
def test_a_malformed_order_is_counted_and_ignored(wrong: dict[str, object]) -> None:
    scheduler, asked = side(), request("a")
    asked.kv_transfer_params = wrong
    scheduler.add(asked, "")
    assert (scheduler.matched(asked, 0, 0.0), scheduler.wrong_orders) == (0, 1)


def test_a_request_loads_once_and_failed_blocks_are_computed() -> None:
    scheduler, asked = side(), request("a", load_blocks=3)
    scheduler.add(asked, "")
    scheduler.matched(asked, 0, 0.0)
    scheduler.allocated(asked, [1, 2, 3, 4], 3 * TOKENS)
    scheduler.report(StepReport(ends=(LoadEnd(request_id="a", outcome=KvOutcome(reason="failed")),)), 1.0)
    assert scheduler.matched(asked, 0, 1.0) == 0
    scheduler.allocated(asked, [1, 2, 3, 4], 3 * TOKENS)
    assert len(scheduler.step([], 0, 0.0).loads) == 1


def test_the_response_contains_the_outcome_of_the_order() -> None:
    scheduler, asked = side(), request("a", load_blocks=3)
    scheduler.add(asked, "")
    scheduler.matched(asked, 0, 0.0)
    scheduler.allocated(asked, [1, 2, 3, 4], 3 * TOKENS)
    end = LoadEnd(
        request_id="a",
        outcome=KvOutcome(loaded_blocks=2, loaded_bytes=2 * PAYLOAD, seconds=0.5, holder=HOLDERS[0], reason="missing"),
    )
    scheduler.report(StepReport(ends=(end,)), 1.0)
    assert scheduler.loaded("a") == (asked, 0, 2 * TOKENS)
    outcome = outcome_in(scheduler.finished("a"))
    assert outcome is not None
    assert (outcome.loaded_blocks, outcome.loaded_bytes, outcome.reason) == (2, 2 * PAYLOAD, "missing")
    assert (outcome.holder, outcome.seconds, len(scheduler)) == (HOLDERS[0], 0.5, 0)


def test_a_response_without_a_load_contains_no_outcome() -> None:
    scheduler, asked = side(), request("a", load_blocks=0)
    scheduler.add(asked, "")
    assert scheduler.finished("a") is None


def test_a_load_slower_than_computing_is_not_started() -> None:
    scheduler = side()
    scheduler.estimate.computed(0.001)
    scheduler.estimate.end("other", 1_000_000, 20.0)
    asked = request("a", load_blocks=3)
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 0, 0.0) == 0
    outcome = outcome_in(scheduler.finished("a"))
    assert outcome is not None
    assert outcome.reason == "late"


def test_unprofitable_loads_are_retried_after_some_rejections() -> None:
    scheduler = side()
    scheduler.estimate.computed(0.001)
    scheduler.estimate.end("other", 1_000_000, 40.0)
    tokens = []
    for number in range(20):
        asked = request(f"r{number}", load_blocks=3)
        scheduler.add(asked, "")
        tokens.append(scheduler.matched(asked, 0, 0.0))
    assert tokens[0] == 0
    assert tokens[-1] == 3 * TOKENS


def test_an_engine_without_a_ratio_limit_loads_at_any_cost() -> None:
    scheduler, asked = side(max_load_ratio=0), request("a", load_blocks=3)
    scheduler.estimate.computed(0.001)
    scheduler.estimate.end("other", 1_000_000, 20_000.0)
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 0, 0.0) == 3 * TOKENS


def test_full_blocks_of_a_prompt_are_stored_once_with_position_and_routing_keys() -> None:
    scheduler, asked = side(), request("a", load_blocks=0, tenant="acme", hint="context_cache", pin_s=60)
    scheduler.add(asked, "")
    (job,) = scheduler.step([progress("a", 2 * TOKENS + 3, [4, 5, 6])], 35, 0.0).saves
    assert (job.block_ids, job.routing_keys) == ((4, 5), (1, 2))
    assert job.parents == (b"", chain("p", 1)[0])
    assert (job.tenant, job.hint, job.pin_s) == ("acme", "context_cache", 60)
    (job,) = scheduler.step([progress("a", 4 * TOKENS + 5, [7, 8], complete=False)], 34, 0.0).saves
    assert (job.block_ids, job.chain_hashes) == ((6, 7), tuple(chain("p", 4)[2:]))
    assert scheduler.step([progress("a", 4 * TOKENS + 6, [], complete=False)], 1, 0.0).saves == ()


def test_a_block_stored_by_another_request_is_stored_again_after_the_interval() -> None:
    scheduler = side(store_again_s=100.0)
    for name, now, saved in (("a", 0.0, 4), ("b", 50.0, 0), ("c", 150.0, 4)):
        scheduler.add(request(name), "")
        jobs = scheduler.step([progress(name, 69, [1, 2, 3, 4, 5])], 69, now).saves
        assert sum(len(job.block_ids) for job in jobs) == saved


def test_a_block_that_the_node_did_not_store_is_offered_with_the_next_request() -> None:
    scheduler = side()
    scheduler.add(request("a"), "")
    (job,) = scheduler.step([progress("a", 69, [1, 2, 3, 4, 5])], 69, 0.0).saves
    scheduler.report(StepReport(unsaved=job.chain_hashes[1:3]), 1.0)
    scheduler.add(request("b"), "")
    (again,) = scheduler.step([progress("b", 69, [6, 7, 8, 9, 10])], 69, 1.0).saves
    assert again.block_ids == (7, 8)


def test_loaded_blocks_are_not_stored_again_and_computed_replacements_are() -> None:
    scheduler, asked = side(), request("a", load_blocks=3)
    scheduler.add(asked, "")
    scheduler.matched(asked, 0, 0.0)
    scheduler.allocated(asked, [1, 2, 3, 4], 3 * TOKENS)
    scheduler.report(
        StepReport(ends=(LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=2, reason="missing")),)), 0.0
    )
    (job,) = scheduler.step([progress("a", 69, [1, 2, 3, 4, 5])], 37, 0.0).saves
    assert job.block_ids == (3, 4)


def test_a_block_lost_by_the_node_is_stored_again_after_its_computation() -> None:
    scheduler = side()
    scheduler.add(request("a"), "")
    scheduler.step([progress("a", 69, [1, 2, 3, 4, 5])], 69, 0.0)
    again = request("b", load_blocks=4)
    scheduler.add(again, "")
    scheduler.matched(again, 0, 1.0)
    scheduler.allocated(again, [6, 7, 8, 9, 10], 4 * TOKENS)
    scheduler.report(
        StepReport(ends=(LoadEnd(request_id="b", outcome=KvOutcome(loaded_blocks=1, reason="missing")),)), 1.0
    )
    (job,) = scheduler.step([progress("b", 69, [6, 7, 8, 9, 10])], 53, 1.0).saves
    assert job.block_ids == (7, 8, 9)


def test_blocks_of_a_response_are_stored_under_the_keys_of_the_next_prompt() -> None:
    scheduler, first = side(), request("a", blocks=4, more_tokens=5, load_blocks=0)
    scheduler.add(first, "")
    (job,) = scheduler.step([progress("a", 69, [1, 2, 3, 4, 5])], 69, 0.0).saves
    assert job.routing_keys == (1, 2, 3, 4)
    first.outputs, first.block_hashes = 11, chain("p", 5)
    (job,) = scheduler.step([progress("a", 80, [], complete=False)], 1, 0.0).saves
    assert (job.block_ids, job.chain_hashes) == ((5,), (chain("p", 5)[4],))
    assert job.routing_keys == (extend_key(4, pack_tokens(first.all_token_ids[64:80])),)


def test_a_block_with_drafts_is_not_stored_before_its_tokens_are_known() -> None:
    scheduler, asked = side(), request("a", blocks=1, more_tokens=5, load_blocks=0)
    scheduler.add(asked, "")
    scheduler.step([progress("a", 21, [1, 2])], 21, 0.0)
    asked.outputs, asked.block_hashes = 9, chain("p", 2)
    # Two drafts follow the known tokens, and the block is full with them.
    assert scheduler.step([progress("a", 32, [], complete=False)], 3, 0.0).saves == ()
    asked.outputs = 11
    (job,) = scheduler.step([progress("a", 33, [3], complete=False)], 1, 0.0).saves
    assert job.block_ids == (2,)


def test_hints_apply_to_their_segment_and_nothing_after_an_ephemeral_block_is_stored() -> None:
    scheduler = side()
    scheduler.add(request("a", load_blocks=0, hint="context_cache", hint_from=1, hint_to=3, pin_s=9), "")
    jobs = scheduler.step([progress("a", 69, [1, 2, 3, 4, 5])], 69, 0.0).saves
    assert [(job.hint, job.pin_s, job.block_ids) for job in jobs] == [
        ("default", 0, (1, 4)),
        ("context_cache", 9, (2, 3)),
    ]
    scheduler.add(request("b", load_blocks=0, prompt="q", hint="ephemeral", hint_from=1), "")
    (job,) = scheduler.step([progress("b", 69, [6, 7, 8, 9, 10])], 69, 0.0).saves
    assert (job.hint, job.block_ids) == ("default", (6,))


def test_blocks_of_a_response_without_keys_are_stored_as_part_of_the_next_prompt() -> None:
    scheduler, first = side(), request("a", blocks=4, more_tokens=-2 * TOKENS)
    scheduler.add(first, "")
    (job,) = scheduler.step([progress("a", 4 * TOKENS, [1, 2, 3, 4])], 64, 0.0).saves
    assert job.block_ids == (1, 2)
    scheduler.add(request("b", blocks=4), "")
    (job,) = scheduler.step([progress("b", 69, [1, 2, 3, 4, 5])], 5, 0.0).saves
    assert job.block_ids == (3, 4)


@pytest.mark.parametrize(("changes", "order"), [({"node": ""}, {}), ({}, {"hint": "ephemeral"})])
def test_nothing_is_stored_without_a_node_or_for_an_ephemeral_prompt(
    changes: dict[str, str], order: dict[str, str]
) -> None:
    scheduler = side(**changes)
    scheduler.add(request("a", **order), "")
    assert scheduler.step([progress("a", 69, [1, 2, 3, 4, 5])], 69, 0.0).saves == ()


def test_salt_and_adapter_give_a_request_its_own_domain() -> None:
    scheduler, asked = side(), request("a")
    asked.cache_salt = "s"
    scheduler.add(asked, "adapter@/models/adapter")
    (job,) = scheduler.step([progress("a", 69, [1, 2, 3, 4, 5])], 69, 0.0).saves
    assert job.domain == Domain("adapter@/models/adapter", "s")


class _Lookup:
    def __init__(self, *answers: int | None) -> None:
        self.answers, self.forgotten = list(answers), list[str]()

    def blocks(self, request_id: str, domain: Domain, chain_hashes: Sequence[bytes], now: float) -> int | None:
        return self.answers.pop(0)

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)


def test_without_an_order_the_local_node_is_queried_and_loaded_from() -> None:
    scheduler, asked = side(), request("a")
    scheduler.lookup = lookup = _Lookup(None, 2)
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 0, 0.0) is None
    assert scheduler.matched(asked, 0, 0.1) == 2 * TOKENS
    scheduler.allocated(asked, [1, 2, 3], 2 * TOKENS)
    (job,) = scheduler.step([], 0, 0.1).loads
    assert job.holders == ("127.0.0.1:1",)
    scheduler.finished("a")
    assert lookup.forgotten == ["a"]


def test_with_an_order_the_local_node_is_not_queried() -> None:
    scheduler, asked = side(), request("a", load_blocks=0)
    scheduler.lookup = _Lookup()
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 0, 0.0) == 0


def test_a_loads_timeout_derives_from_the_compute_time_of_its_tokens() -> None:
    scheduler = side(load_timeout_s=2.0, max_load_ratio=2.0)
    scheduler.estimate.computed(0.01)
    for name, blocks, timeout_s in (("a", 2, 0.64), ("b", 40, 2.0)):
        asked = request(name, blocks=blocks, load_blocks=blocks)
        scheduler.add(asked, "")
        tokens = scheduler.matched(asked, 0, 0.0)
        assert tokens
        scheduler.allocated(asked, range(blocks + 1), tokens)
        (job,) = scheduler.step([], 0, 0.0).loads
        assert job.timeout_s == pytest.approx(timeout_s)


def test_blocks_that_become_a_context_cache_are_offered_again_to_be_pinned() -> None:
    scheduler = side()
    for name, hint, saved in (("a", "default", 4), ("b", "context_cache", 4), ("c", "context_cache", 0)):
        scheduler.add(request(name, hint=hint, pin_s=60), "")
        jobs = scheduler.step([progress(name, 69, [1, 2, 3, 4, 5])], 69, 0.0).saves
        assert sum(len(job.block_ids) for job in jobs) == saved


def test_a_block_is_not_offered_again_before_its_interval_ends() -> None:
    offered, blocks = OfferedBlocks(10.0), chain("p", 2)
    offered.add(blocks[:1], 0.0)
    assert [offered.has(block, 9.9) for block in blocks] == [True, False]
    assert not offered.has(blocks[0], 10.0)


def test_the_newest_offers_are_kept_within_the_limit() -> None:
    offered, blocks = OfferedBlocks(10.0, max_blocks=3), chain("p", 4)
    offered.add(blocks[:3], 0.0)
    offered.add([blocks[0], blocks[3]], 1.0)
    assert [offered.has(block, 2.0) for block in blocks] == [True, False, True, True]
    assert len(offered) == 3


def test_blocks_that_the_node_did_not_store_are_forgotten() -> None:
    offered, blocks = OfferedBlocks(10.0), chain("p", 2)
    offered.add(blocks, 0.0)
    offered.drop([blocks[1], b"unknown"])
    assert [offered.has(block, 1.0) for block in blocks] == [True, False]
