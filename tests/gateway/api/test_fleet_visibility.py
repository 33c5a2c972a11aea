"""Responses to one tenant reveal nothing about another's requests: by numbers, sizes, or response times."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.requests.caller_facts import DecisionCaller
from gateway.server.http.sync_fast_path import KnownHead
from routing.values.observation import Completed, FirstToken
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served

ROUTE = "/api/v1/route"
HITS = {"predicted_hit_tokens", "compute_s"}
FIGURES = HITS | {"reason", "candidates", "wait_s", "queued_s"}
PROBES = 4000
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


def distinguishability(hits: Sequence[float], misses: Sequence[float]) -> float:
    """Return the area under the curve (AUC) at which a number separates hits from misses, in either direction."""
    ranks: dict[float, list[int]] = {}
    for values, kind in ((hits, 1), (misses, 0)):
        for value in values:
            ranks.setdefault(value, [0, 0])[kind] += 1
    below = wins = 0.0
    for value in sorted(ranks):
        of_misses, of_hits = ranks[value]
        wins += of_hits * (below + of_misses / 2)
        below += of_misses
    area = wins / (len(hits) * len(misses))
    return max(area, 1 - area)


def numbers_in(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield each number of decoded JSON with its path, and the length of each list."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from numbers_in(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield f"{path}[]", len(value)
        for index, item in enumerate(value):
            yield from numbers_in(item, f"{path}[{index}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)


def _asked(gateway: ServedGateway, key: str, first_block: int, **fields: Any) -> tuple[Any, dict[str, float]]:
    """Ask for a decision on a prompt; return the response and everything measurable about it."""
    caller = gateway.gateway.api_key(sha256(key.encode()).hexdigest())
    assert caller is not None
    hashes = [first_block + block for block in range(8)]
    body = json.dumps({"model": MODEL, "block_hashes": hashes, "wait": False, **fields}).encode()
    began = time.thread_time()
    answered = gateway.app.answer_at_once(
        KnownHead((caller,), gateway.gateway.snapshot, DecisionCaller(caller, caller)), body
    )
    took = time.thread_time() - began
    assert answered is not None
    answer = json.loads(answered.body)
    measured = dict(numbers_in(answer))
    held_s = round(measured.pop("expires_at") - time.time(), 1)
    return answer, {**measured, "bytes": len(answered.body), "held_s": held_s, "cpu_s": took}


def _probed(gateway: ServedGateway, key: str, prompt: int) -> dict[str, float]:
    """Reserve an engine for a prompt, and meanwhile ask for two fresh prompts that no tenant has sent."""
    fresh = 10_000_000 + prompt * 1000
    answers = {
        "guess": _asked(gateway, key, prompt * 100),
        "next": _asked(gateway, key, fresh),
        "salted": _asked(gateway, key, fresh + 100, cache_salt="mine"),
    }
    for answer, _ in answers.values():
        gateway.pool.observe(FirstToken(answer["decision_id"]))
        gateway.pool.observe(Completed(answer["decision_id"], None))
    return {f"{name}.{part}": value for name, (_, numbers) in answers.items() for part, value in numbers.items()}


def _areas(gateway: ServedGateway, key: str, *, reports: bool = True) -> dict[str, float]:
    """Return how well each number separates tenant a's prompts from others when asked with this key."""
    numbers = list(range(1, PROBES + 1))
    random.Random(7).shuffle(numbers)
    known = set(numbers[: PROBES // 2])
    if reports:
        for key_id in ("ka", "kb"):
            gateway.app._route_api._reporting.reported(key_id, time.monotonic())
    for number in known:
        answer, _ = _asked(gateway, KEY, number * 100)
        gateway.pool.observe(Completed(answer["decision_id"], None))
    probed = [(number in known, _probed(gateway, key, number)) for number in sorted(numbers)]
    return {
        name: distinguishability(
            [item[name] for hit, item in probed if hit], [item[name] for hit, item in probed if not hit]
        )
        for name in probed[0][1]
    }


async def test_an_isolated_tenant_cannot_distinguish_anothers_prompts(tmp_path: Path) -> None:
    pool: dict[str, Any] = {"key_source": "approximate", "unsalted_tenant": "tenant-a", "isolated": True}
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, **pool) as gateway:
        assert max(_areas(gateway, OTHER_KEY).values()) <= 0.55


@pytest.mark.parametrize("reports", [True, False])
async def test_in_shared_pools_no_number_of_a_decision_reveals_anothers_prompts(tmp_path: Path, reports: bool) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, key_source="approximate") as gateway:
        areas = _areas(gateway, OTHER_KEY, reports=reports)
    assert max(area for name, area in areas.items() if not name.endswith("cpu_s")) <= 0.55


async def test_an_operators_key_sees_hits_in_its_figures_and_in_later_waits(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, key_source="approximate") as gateway:
        areas = _areas(gateway, KEY)
    assert areas["guess.predicted_hit_tokens"] == areas["guess.compute_s"] == 1.0
    assert areas["next.wait_s"] > 0.9


@pytest.mark.parametrize("wait", [True, False])
async def test_with_shared_caches_only_operators_keys_see_hit_figures(tmp_path: Path, wait: bool) -> None:
    question = {"model": MODEL, "block_hashes": [1, 2], "wait": wait}
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        _, mine, _ = await gateway.post(ROUTE, question, key=OTHER_KEY)
        _, operators, _ = await gateway.post(ROUTE, question)
        _, batch, _ = await gateway.post(ROUTE + "/batch", [question], key=OTHER_KEY)
        apart = (await gateway.post(ROUTE, {**question, "cache_salt": "mine"}, key=OTHER_KEY))[1]
        for item in (apart, mine):
            status, rejected = await gateway.get(f"/api/v1/explain/{item['decision_id']}", key=OTHER_KEY)
            assert (status, rejected["error"]["code"]) == (403, "shared_caches")
        assert (await gateway.get(f"/api/v1/explain/{operators['decision_id']}"))[0] == 200
    assert not FIGURES & set(mine) and not FIGURES & set(batch["decisions"][0])
    assert set(operators) == set(mine) | FIGURES
    assert set(apart) == set(mine) | HITS, "a wait contains reservations of prompts that others may have cached"


@pytest.mark.parametrize("streamed", [False, True])
async def test_with_shared_caches_usage_reports_no_cached_tokens(tmp_path: Path, streamed: bool) -> None:
    body = {**CHAT, "stream": streamed, **({"stream_options": {"include_usage": True}} if streamed else {})}
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        reported = [await _text(gateway, body, key) for key in (OTHER_KEY, KEY)]
        seen = {record.cached_tokens for record in gateway.app.recent._records.values()}
    assert ["cached_tokens" in item for item in reported] == [False, True]
    assert all("completion_tokens" in item for item in reported)
    assert seen == {engine.cached_tokens}


async def _text(gateway: ServedGateway, body: dict[str, Any], key: str) -> str:
    headers = {"authorization": f"Bearer {key}"}
    async with gateway.client.post(gateway.url + "/v1/chat/completions", json=body, headers=headers) as response:
        return await response.text()


async def test_a_prompt_that_cannot_be_tokenized_is_still_isolated(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, isolated=True) as gateway:
        engine.tokenizer_status = 500
        _, answer, _ = await gateway.post(ROUTE, {**CHAT, "wait": False})
    assert (answer["key_source"], set(answer["body"])) == ("none", {"cache_salt"})
