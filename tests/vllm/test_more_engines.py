"""Engines with special settings: admission limits, LoRA adapters, embeddings, and roles that hand over by NIXL."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from bench.live.loopback_ports import free_ports
from tests.vllm.attached import Headway, words
from tests.vllm.conftest import MODEL as WEIGHTS
from tests.vllm.conftest import StartEngines
from tests.vllm.real_engine import RealEngine

pytestmark = pytest.mark.vllm
COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
LIMITED, PAIRED, ADAPTED, EMBEDS = "tiny-limited", "tiny-paired", "tiny-adapted", "tiny-embeds"
LIMIT = 3
EMBEDDING = ("--runner", "pooling", "--convert", "embed", "--enable-prefix-caching")
LORA = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"other={WEIGHTS / 'adapter'}")


def _connected(headway: Headway, *engines: RealEngine) -> dict[str, str]:
    """Connect the engines and return their ids by URL."""
    printed = headway.connect(*engines)
    assert printed.count("Routing exactly.") == len(engines), printed
    return {engine.url: headway.engine_id(engine.url) for engine in engines}


def test_an_engine_at_its_admission_limit_is_busy_and_not_broken(headway: Headway, started: StartEngines) -> None:
    limited = {"name": LIMITED, "flags": ("--max-num-queued-reqs", str(LIMIT))}
    engines = started(limited, limited)
    _connected(headway, *engines)
    stop, rejected = threading.Event(), []

    def past_headway(number: int) -> None:
        body = {"model": LIMITED, "prompt": words(60, f"past {number}"), "max_tokens": 60, "ignore_eos": True}
        while not stop.is_set():
            rejected.append(engines[0].post(COMPLETIONS, body)[0] == 503)

    with ThreadPoolExecutor(LIMIT + 4) as pool:
        for number in range(LIMIT + 1):
            pool.submit(past_headway, number)
        try:
            asked = [
                pool.submit(headway.send, COMPLETIONS, model=LIMITED, prompt=words(60, f"limit {turn}"), max_tokens=4)
                for turn in range(24)
            ]
            answers = [item.result() for item in asked]
        finally:
            stop.set()
    assert any(rejected), "the engine was at its limit"
    assert {answer.status for answer in answers} == {200}
    assert headway.metric("headway_retries_total", cause="throttled") > 0
    assert headway.metric("headway_breaker_trips_total", cause="http_5xx") == 0


def test_an_adapter_and_its_model_share_no_hit_and_each_is_predicted_exactly(
    headway: Headway, started: StartEngines
) -> None:
    (engine,) = started({"name": ADAPTED, "flags": LORA})
    _connected(headway, engine)
    prompt = words(200, "adapted")
    status, raw = engine.post(COMPLETIONS, {"model": "other", "prompt": prompt, "max_tokens": 2, "temperature": 0})
    assert status == 200, raw
    first = headway.ask(COMPLETIONS, model=ADAPTED, prompt=prompt, max_tokens=2)
    second = headway.ask(COMPLETIONS, model=ADAPTED, prompt=prompt, max_tokens=2)
    adapted = headway.ask(COMPLETIONS, model="other", prompt=prompt, max_tokens=2)
    assert (first.predicted, first.cached) == (0, 0)
    assert second.predicted == second.cached > 0
    assert adapted.predicted == adapted.cached > 0
    cards = {card["id"]: card for card in headway.call("/v1/models")[1]["data"]}
    assert cards["other"]["parent"] == ADAPTED


def test_embeddings_equal_the_engines_and_their_hits_are_predicted(headway: Headway, started: StartEngines) -> None:
    (engine,) = started({"name": EMBEDS, "flags": EMBEDDING})
    _connected(headway, engine)
    text, before = words(200, "embedded"), _cached(engine)
    first = headway.ask(EMBEDDINGS, model=EMBEDS, input=text)
    assert (first.status, first.predicted, _cached(engine)) == (200, 0, before)
    second = headway.ask(EMBEDDINGS, model=EMBEDS, input=text)
    assert second.predicted == _cached(engine) - before > 0
    alone = json.loads(engine.post(EMBEDDINGS, {"model": EMBEDS, "input": text})[1])
    for answer in (first, second):
        assert answer.body["data"][0]["embedding"] == pytest.approx(alone["data"][0]["embedding"], abs=0.02)
    with openai.OpenAI(base_url=f"{headway.url}/v1", api_key=headway.key, max_retries=20) as client:
        several = client.embeddings.create(model=EMBEDS, input=[text, words(60, "another")])
    assert [len(item.embedding) for item in several.data] == [len(alone["data"][0]["embedding"])] * 2


def _cached(engine: RealEngine) -> float:
    """Return the prompt tokens that hit the engine's cache since its start."""
    text = engine.get("/metrics")[1].decode()
    values = re.findall(r"^vllm:prefix_cache_hits_total(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)
    assert values
    return sum(map(float, values))


def test_prompts_move_from_a_prefill_to_a_decode_engine_and_none_is_lost(
    headway: Headway, started: StartEngines, engines: list[RealEngine]
) -> None:
    """Each response equals that of a single engine. A failed handoff is retried."""
    pair = started(*(_nixl(port) for port in free_ports(2)))
    ids = _connected(headway, *pair)
    for engine, role in zip(pair, ("prefill", "decode"), strict=True):
        headway.change_engine(ids[engine.url], "", {"role": role}, method="PATCH")
    prompts = [words(200, f"handed over {number}") for number in range(24)]
    done = headway.metric("headway_handoffs_total", outcome="done")

    def ask(prompt: str) -> Any:
        return headway.send(COMPLETIONS, model=PAIRED, prompt=prompt, max_tokens=8)

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, prompts))
    assert [item.status for item in answers] == [200] * len(prompts), [item.body for item in answers]
    for prompt, answer in zip(prompts, answers, strict=True):
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0}
        alone = json.loads(engines[0].post(COMPLETIONS, body)[1])
        assert answer.text == alone["choices"][0]["text"]
    assert headway.metric("headway_handoffs_total", outcome="done") - done > len(prompts) // 2


def _nixl(port: int) -> dict[str, Any]:
    transfer = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    return {
        "name": PAIRED,
        "flags": ("--kv-transfer-config", json.dumps(transfer)),
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port),
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "lo",
    }
