"""Two real engines and their nodes: an advisory moves a session's KV from SSD to DRAM before its request.

`pytest -o log_cli=true --log-cli-level=INFO` shows the TTFT with advisories and without.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.contracts.kv_move import KvMoveRow
from gateway.contracts.stored_decision import StoredDecision
from kvstore.tiers.block_facts import DRAM, SSD
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.values import reasons
from tests.patience import until
from tests.vllm.attached import words
from tests.vllm.behind_gateway import DEAR, Fleet, Node, running_nodes, serving
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine

pytestmark = pytest.mark.vllm
ADVISORIES = "/api/v1/advisories"
TENANT = "tenant-a"
POLICY = RoutingPolicy(placement=Stage(name="least_cost"), prefill_cost=DEAR, advisories="gated")
PAIRS = 6


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Iterator[list[Node]]:
    with running_nodes(tmp_path_factory.mktemp("nodes"), logs / "advised") as made:
        yield made


class Turn(NamedTuple):
    """A session's question, its response, and the blocks of its prompt."""

    session: str
    text: str
    keys: tuple[int, ...]
    answer: dict[str, Any]

    @property
    def blocks(self) -> int:
        """Return the number of loadable blocks of the prompt, whose last token is always computed."""
        return int((self.answer["usage"]["prompt_tokens"] - 1) // BLOCK_TOKENS)


async def turns_on_ssd_alone(fleet: Fleet, nodes: Sequence[Node], first: int, sessions: Sequence[str]) -> list[Turn]:
    """Run sessions on one engine until their KV is only on its node's SSD, then let only the second engine serve."""
    node, turns = nodes[first], list[Turn]()
    await fleet.only(f"engine-{first}")
    for session in sessions:
        text = words(1000, session)
        answer, _ = await fleet.ask(text, session_id=session)
        known = fleet.gateway.gateway.advisories.sessions.get(TENANT, session)
        assert known is not None
        turns.append(Turn(session, text, tuple(known.keys), answer))
    keys = [key for turn in turns for key in turn.keys]
    await until(lambda: all(SSD in media for media in node.store.media(keys)))
    await asyncio.to_thread(node.store.end)
    await asyncio.to_thread(node.store.start)
    assert node.store.media(keys) == [[SSD]] * len(keys)
    if first == 1:
        await forgets(fleet, node.engine)
    await fleet.only("engine-1")
    holdings = fleet.gateway.gateway.kv_nodes.holdings
    await until(lambda: all(holdings.where(key) == ((), (node.name,)) for key in keys))
    return turns


async def forgets(fleet: Fleet, engine: RealEngine) -> None:
    """Clear the second engine's cache, which it reports with its next step."""
    cleared = all_cleared(fleet)
    assert engine.post("/reset_prefix_cache")[0] == 200
    prompt = {"model": "tiny", "prompt": words(40, "past the gateway"), "max_tokens": 1}
    assert engine.post("/v1/completions", prompt)[0] == 200
    await until(lambda: all_cleared(fleet) > cleared)


def all_cleared(fleet: Fleet) -> float:
    return fleet.gateway.gateway.metrics.kv_events.value("engine-1", "AllBlocksCleared")


async def advised(fleet: Fleet, turn: Turn, target: Node) -> KvMoveRow:
    """Announce a session's next request; return the order that moved its blocks to DRAM, once it has ended."""
    known = set(fleet.orders)
    body = {"session_id": turn.session, "expected_arrival_s": 30}
    status, answer, _ = await fleet.gateway.post(ADVISORIES, body)
    assert (status, answer) == (202, {"session_id": turn.session, "state": "prefetching"})
    await until(lambda: bool(fleet.orders.keys() - known))
    (order_id,) = fleet.orders.keys() - known
    row = fleet.orders[order_id]
    assert (row.planner, row.outcome, row.blocks) == ("advisory", "moved", len(turn.keys))
    assert all(DRAM in media for media in target.store.media(turn.keys))
    await until(in_dram(fleet, turn, target))
    status, state = await fleet.gateway.get(f"{ADVISORIES}/{turn.session}")
    assert (status, state["state"], state["moved_blocks"]) == (200, "reserved", len(turn.keys))
    return row


def in_dram(fleet: Fleet, turn: Turn, node: Node) -> Callable[[], bool]:
    holdings = fleet.gateway.gateway.kv_nodes.holdings
    return lambda: all(node.name in holdings.where(key)[0] for key in turn.keys)


def loaded_from_dram(turn: Turn, answer: dict[str, Any], record: StoredDecision, nodes: Sequence[str] = ("b",)) -> None:
    """Check that the request loaded its prompt from the DRAM of one of these nodes; b is its engine's own."""
    fetch, load = record.decision.fetch, record.load
    assert fetch is not None and load is not None
    assert (record.decision.engine_id, record.decision.reason) == ("engine-1", reasons.ADVISED)
    assert (fetch.blocks, fetch.ssd_blocks) == (turn.blocks, 0)
    assert (load.node, load.blocks, load.reason) == (fetch.node, turn.blocks, "")
    assert load.node in nodes
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert load.saved_tokens == cached == turn.blocks * BLOCK_TOKENS


@pytest.mark.parametrize("first", [0, 1], ids=["ssd of another node", "ssd of its own node"])
async def test_an_advisory_moves_a_sessions_kv_from_ssd_to_dram_before_its_request(
    nodes: list[Node], tmp_path: Path, first: int
) -> None:
    async with serving(nodes, tmp_path, POLICY) as fleet:
        (turn,) = await turns_on_ssd_alone(fleet, nodes, first, [f"advised from {first}"])
        assert turn.blocks > 20
        row = await advised(fleet, turn, nodes[1])
        assert (row.source, row.target, row.loads) == (nodes[first].name, "b", 0)
        answer, record = await fleet.ask(turn.text, session_id=turn.session)
        loaded_from_dram(turn, answer, record)
        assert answer["choices"][0]["message"]["content"] == turn.answer["choices"][0]["message"]["content"]
        advisory = record.advisory
        assert advisory is not None
        assert (advisory.held_by, advisory.moved_to, advisory.moved_blocks) == (nodes[first].name, "b", len(turn.keys))
        assert (advisory.outcome, advisory.expected_s) == ("useful", 30.0)
        await until(lambda: fleet.orders[row.order_id].worth == "useful")
        assert fleet.orders[row.order_id].saved_tokens == turn.blocks * BLOCK_TOKENS


async def test_with_advisories_requests_load_from_dram_and_without_from_ssd(
    nodes: list[Node], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with serving(nodes, tmp_path, POLICY) as fleet:
        sessions = [f"pair {number}" for number in range(2 * PAIRS)]
        turns = await turns_on_ssd_alone(fleet, nodes, 0, sessions)
        ttfts: dict[bool, list[float]] = {True: [], False: []}
        for number, turn in enumerate(turns):
            with_advisory = number % 4 in (0, 3)
            if with_advisory:
                await advised(fleet, turn, nodes[1])
            began = time.monotonic()
            answer, record = await fleet.ask(turn.text, session_id=turn.session, max_tokens=1)
            ttfts[with_advisory].append(time.monotonic() - began)
            if with_advisory:
                # The sending node read them into its DRAM, and the loads so far rate the links.
                loaded_from_dram(turn, answer, record, ("a", "b"))
            else:
                fetch, load = record.decision.fetch, record.load
                assert fetch is not None and load is not None
                assert (fetch.node, fetch.ssd_blocks, load.blocks) == ("a", turn.blocks, turn.blocks)
        ratio = statistics.median(
            advised_s / other_s for advised_s, other_s in zip(ttfts[True], ttfts[False], strict=True)
        )
        medians = [1e3 * statistics.median(ttfts[item]) for item in (True, False)]
        record_property("ttft_with_over_without", ratio)
        logging.getLogger(__name__).info(
            "TTFT of %d tokens: %.1f ms with advisories, %.1f ms without, ratio of pairs %.2f",
            turns[0].answer["usage"]["prompt_tokens"],
            *medians,
            ratio,
        )
