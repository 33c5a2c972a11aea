"""The current speed of two engines on this machine, which scales rates, costs, and the objective."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from bench.engines.real_engines_run.conversations import HOT_ANSWER_TOKENS
from routing.policy.dispatch_limit_document import BLIND, DispatchLimitDocument
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy
from tests.vllm.real_engine import MODEL, RealEngine

CONTEXT = 8192


def prefill_s(one: RealEngine, words: int, seed: int) -> tuple[int, float]:
    """Return the tokens of a new prompt, and the seconds until its first token."""
    text = " ".join(str(choice) for choice in random.Random(seed).choices(range(1000), k=words))
    return _completed(one, {"prompt": text, "max_tokens": 1})


def answer_s(one: RealEngine, seed: int) -> float:
    """Return the seconds of a long answer to a short prompt."""
    fields = {"max_tokens": HOT_ANSWER_TOKENS, "ignore_eos": True, "temperature": 0}
    return _completed(one, {"prompt": f"{seed} and so on", **fields})[1]


def _completed(one: RealEngine, fields: Mapping[str, object]) -> tuple[int, float]:
    """Return a completion's prompt tokens, and the seconds that it took."""
    began = time.monotonic()
    status, raw = one.post("/v1/completions", {"model": MODEL, **fields})
    if status != 200:
        raise RuntimeError(raw.decode())
    return json.loads(raw)["usage"]["prompt_tokens"], time.monotonic() - began


class Speed:
    """Measured speed: seconds to prefill on an idle engine, and tokens per second of both together."""

    def __init__(self, engines: Sequence[RealEngine]) -> None:
        short = [prefill_s(engines[0], 40, seed) for seed in range(5)]
        long = [prefill_s(engines[0], 2200, seed) for seed in range(100, 103)]
        (few, base), (many, whole) = (
            (statistics.median(item) for item in zip(*some, strict=True)) for some in (short, long)
        )
        self.per_token_s = max((whole - base) / (many - few), 1e-6)
        self.base_s = max(base - few * self.per_token_s, 0.0)
        self.objective_s = 2 * (self.base_s + CONTEXT * self.per_token_s)
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(prefill_s, engines[seed % 2], 1000, seed) for seed in range(200, 212)]
            tokens = sum(item.result()[0] for item in asked)
        self.tokens_per_s = tokens / (time.monotonic() - began)
        self.answers_per_s, self.tpot_s = 0.0, 0.0

    def measure_answers(self, engines: Sequence[RealEngine]) -> None:
        """Measure long answers with eight on each engine: answers per second, and seconds per token."""
        with ThreadPoolExecutor(8 * len(engines)) as pool:
            began = time.monotonic()
            asked = [pool.submit(answer_s, engines[seed % 2], seed) for seed in range(300, 300 + 24 * len(engines))]
            times = [item.result() for item in asked]
        self.answers_per_s = len(times) / (time.monotonic() - began)
        self.tpot_s = statistics.median(times) / HOT_ANSWER_TOKENS

    def policy(self, *, queues: bool) -> RoutingPolicy:
        """Return the default policy with this objective. These costs apply until better ones are learned."""
        cost = PrefillCostDocument(base_s=self.base_s, per_token_s=self.per_token_s, per_token_squared_s=0.0)
        push = DispatchLimitDocument() if queues else DispatchLimitDocument(mode=BLIND)
        policy = RoutingPolicy(ttft_slo_s=self.objective_s, prefill_cost=cost, cost="fitted", dispatch_limit=push)
        return msgspec.structs.replace(policy, tpot_slo_s=self.tpot_objective_s) if self.tpot_s else policy

    @property
    def tpot_objective_s(self) -> float:
        """Return 1.5 times the time per token with eight answers on each engine; infinite if not measured."""
        return 1.5 * self.tpot_s if self.tpot_s else math.inf
