"""The value of a pool of KV caches (Mooncake §7.3): capacity, sharing, hints (§5.2); long prompts (§3.3, §7.4.3)."""

from __future__ import annotations

from random import Random

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import whole_trace, workload
from kvstore.transfer.frames import CacheHint
from routing.policy.policy_document import Stage
from simulator.engine_cache.prefix_cache import PrefixCache
from simulator.engine_models.engine_events import FirstTokenEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.pd import DecodeRole, PrefillRole
from simulator.engine_models.pipelined import PipelinedEngine
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.kv_nodes.node_cache import NodeCache
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.arrivals import keys_of_rows
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

LOCAL_TOKENS, POOLED_TOKENS = 3_000_000, 50_000_000
CAPACITIES = (500_000, 1_000_000, LOCAL_TOKENS, 10_000_000, 20_000_000, POOLED_TOKENS, 1_000_000_000)
"""Sizes in tokens. The last one holds all blocks."""
SEQUENCES = ("conversation", "toolagent_like", "both")
ENGINES, OWN_TOKENS = 10, 300_000
RATES = {"conversation": 10.0, "toolagent_like": 18.0}
MIX_REQUESTS, MIX_DRAM_BLOCKS, MIX_SSD_TIMES = 12_000, 5_000, 2
EPHEMERAL, CONTEXT = 0.62, 0.08
STRATEGIES = ("lru", "ephemeral out", "hierarchy", "unbounded")
LENGTHS = (8_192, 16_384, 32_768, 65_536, 131_072)
RATIOS = (0.0, 0.95)
DECODED = 128
STAGES, CHUNK_TOKENS, SHORT_TOKENS = (1, 2, 4), 2048, 1024


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a part of the chapter, and the values that identify the row."""

    kind: str
    name: str = ""
    number: float = 0.0
    ratio: float = 0.0


def measure(jobs: int) -> Result:
    """Measure all parts."""
    asked = [
        *(Asked(kind="capacity", name=name, number=tokens) for name in SEQUENCES for tokens in CAPACITIES),
        *(Asked(kind="sharing", name=trace, number=shared) for trace in RATES for shared in (0, 1)),
        *(Asked(kind="hints", name=name) for name in STRATEGIES),
        *(Asked(kind="layers", number=tokens, ratio=ratio) for tokens in LENGTHS for ratio in RATIOS),
        *(Asked(kind="pipeline", number=stages) for stages in STAGES),
    ]
    settings = {
        "capacity": "all rows of the traces in their order, leaf-LRU; both: the two in turn",
        "sharing": {"engines": ENGINES, "tokens": LOCAL_TOKENS, "qps": RATES, "output_tokens": 1},
        "hints": {
            "generated": True,
            "requests": MIX_REQUESTS,
            "dram_blocks": MIX_DRAM_BLOCKS,
            "ssd_blocks": MIX_DRAM_BLOCKS * MIX_SSD_TIMES,
        },
        "layers": "one request on an idle prefill and an idle decode engine, 100 Gbit/s",
        "pipeline": {"tokens": [LENGTHS[-1], SHORT_TOKENS], "chunk_tokens": CHUNK_TOKENS},
    }
    return measured(name="kv_store", settings=settings, rows=run_all(measure_one, asked, jobs=jobs, title="kv_store"))


def measure_one(asked: Asked) -> Row:
    """Measure one row."""
    parts = {"capacity": capacity, "sharing": sharing, "hints": hints, "layers": layers, "pipeline": pipeline}
    row: Row = msgspec.to_builtins(asked)
    return row | parts[asked.kind](asked)


def capacity(asked: Asked) -> Row:
    """Return the hit share of prompt tokens in one cache of a given size, by the order of requests alone (Fig. 16)."""
    cache = PrefixCache(int(asked.number) // BLOCK_TOKENS)
    hit = total = 0
    for row, keys in _sequence(asked.name):
        hit += min(BLOCK_TOKENS * cache.match(keys), row.input_length)
        total += row.input_length
        cache.insert(keys)
    return {"hit_rate": hit / total}


def _sequence(name: str) -> list[tuple[TraceRow, tuple[int, ...]]]:
    """Return rows and keys of a trace, or of both interleaved at their own paces. Traces share no block."""
    names = list(RATES) if name == "both" else [name]
    requests = []
    for seed, trace in enumerate(names):
        rows = whole_trace(trace)
        keys = keys_of_rows(rows, seed)
        requests += [(at / len(rows), pair) for at, pair in enumerate(zip(rows, keys, strict=True))]
    return [pair for _, pair in sorted(requests, key=lambda item: item[0])]


def sharing(asked: Asked) -> Row:
    """Return hits and mean prefill time of ten engines with 3M tokens each, separate or shared (Fig. 17)."""
    shared = bool(asked.number)
    profile = EngineProfile(num_blocks=(OWN_TOKENS if shared else LOCAL_TOKENS) // BLOCK_TOKENS)
    base = workload(asked.name)
    rows = Workload([msgspec.structs.replace(row, output_length=1) for row in base.rows], max_input=base.max_input)
    spec = RunSpec(
        policy=evaluation_policy(Stage(name="mooncake"), Stage(name="fifo")),
        engines=ENGINES,
        qps=RATES[asked.name],
        profile=profile,
        kv_nodes=KvNodesSpec(nodes=ENGINES, dram_tokens=LOCAL_TOKENS) if shared else None,
    )
    simulation = run(spec, rows)
    simulation.check()
    served = [item for item in simulation.history if item.hit_tokens is not None]
    hits = [(item.request.prompt_tokens, item.hit_tokens or 0) for item in served]
    return {
        "hit_rate": sum(hit for _, hit in hits) / sum(tokens for tokens, _ in hits),
        "prefill_mean_s": sum(profile.prefill_s(*item) for item in hits) / len(hits),
        "ttft_mean_s": sum(item.ttft_s or 0.0 for item in served) / len(served),
    }


def hints(asked: Asked) -> Row:
    """Return the block hit share of a generated mix in a store, with and without hints and SSD (§7.3.4).

    Stores without SSD have as much more DRAM, so that only the rules differ.
    """
    ssd = MIX_DRAM_BLOCKS * MIX_SSD_TIMES
    sizes = {"hierarchy": (MIX_DRAM_BLOCKS, ssd), "unbounded": (MIX_REQUESTS * 64, 0)}
    cache = NodeCache(*sizes.get(asked.name, (MIX_DRAM_BLOCKS + ssd, 0)), pin_share=1.0)
    hit = total = 0
    for now, (keys, hint) in enumerate(_mix()):
        hit += cache.read(keys, float(now)).blocks
        total += len(keys)
        heeded = hint if asked.name == "hierarchy" or (asked.name == "ephemeral out" and hint == "ephemeral") else None
        cache.put(keys, float(now), hint=heeded or "default", pin_s=MIX_REQUESTS)
        cache.take_changed()
    return {"hit_rate": hit / total}


def _mix() -> list[tuple[tuple[int, ...], CacheHint]]:
    """Return prompts' blocks and hints: search results used once, documents used again, and conversations."""
    random, made = Random(52), list[tuple[tuple[int, ...], CacheHint]]()
    talks: list[tuple[int, ...]] = []
    for number in range(MIX_REQUESTS):
        own, kind = 1_000_000 + 100 * number, random.random()
        if kind < EPHEMERAL:
            made.append((tuple(range(own, own + 4)), "ephemeral"))
        elif kind < EPHEMERAL + CONTEXT:
            document = 100 * random.randrange(120)
            made.append(((*range(document, document + 40), own), "context_cache"))
        else:
            # A conversation continues after a while, or a new one begins.
            goes_on = talks and random.random() < 0.7
            before = talks.pop(random.randrange(len(talks))) if goes_on else ()
            talk = (*before, *range(own, own + 6))
            made.append((talk, "default"))
            if len(talk) < 48:
                talks.append(talk)
            del talks[:-400]
    return made


def layers(asked: Asked) -> Row:
    """Return the parts of one request's time to first token when its KV is sent layer by layer (Fig. 22)."""
    profile, tokens = EngineProfile(num_blocks=2 * LENGTHS[-1] // BLOCK_TOKENS), int(asked.number)
    cached = int(tokens * asked.ratio) // BLOCK_TOKENS
    keys = tuple(range(1, tokens // BLOCK_TOKENS + 1))
    prefill, began_s = PrefillRole(profile), 0.0
    if cached:
        prefill.submit(PromptSequence("before", keys[:cached], cached * BLOCK_TOKENS, 2), 0.0)
        began_s = _until_idle(prefill)[0] + 1000.0
    prefill.submit(PromptSequence("asked", keys, tokens, DECODED), began_s)
    ended_s = _until_idle(prefill)[0]
    (handover,) = [handover for handover in prefill.take_handovers() if handover.sequence.request_id == "asked"]
    decode = DecodeRole(profile)
    decode.submit(handover.sequence, handover.ready_s)
    finished_s = _until_idle(decode)[1]
    return {
        "prefill_s": ended_s - began_s,
        "transfer_left_s": handover.ready_s - ended_s,
        "transfer_s": tokens * profile.kv_bytes_per_token / profile.link_bytes_per_s,
        "ttft_s": handover.ready_s - began_s,
        "decode_s": finished_s - handover.ready_s,
    }


def pipeline(asked: Asked) -> Row:
    """Return the TTFT of a long and of a short prompt on an idle group of nodes with parts of the layers (§3.3)."""
    profile = EngineProfile(
        num_blocks=2 * LENGTHS[-1] // BLOCK_TOKENS, max_batched_tokens=CHUNK_TOKENS, pipeline_stages=int(asked.number)
    )
    row = {}
    for name, tokens in (("long_s", LENGTHS[-1]), ("short_s", SHORT_TOKENS)):
        engine = PipelinedEngine(profile)
        engine.submit(PromptSequence(name, tuple(range(1, tokens // BLOCK_TOKENS + 1)), tokens), 0.0)
        row[name] = _until_idle(engine)[0]
    return row


def _until_idle(engine: PrefillRole | DecodeRole | PipelinedEngine) -> tuple[float, float]:
    """Run an engine until its work ends. Return the times of its last first token and of the end."""
    first_s = now = 0.0
    while (due_s := engine.next_event_time()) is not None:
        now = due_s
        for event in engine.advance(now):
            first_s = event.at_s if isinstance(event, FirstTokenEvent) else first_s
    return first_s, now
