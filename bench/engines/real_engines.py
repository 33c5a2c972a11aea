"""Two real vLLM engines behind ours and other routers: `python -m bench.engines.real_engines`.

It needs `eval export $(.ci/setup-vllm)`. Conversations of one to six turns over six system prompts, a fifth of them
with a long document, begin in bursts. Prompts have about 300 to 8,000 tokens, and each engine's cache holds 12,000.
Each run sends the same requests at the same times, answered or not, with text that no earlier run had. The routers, in
turn: engines by round robin, without a proxy; sglang-router cache_aware; vllm-router kv_aware, fed by the engines' KV
events; Headway with its default policy; Headway that queues nothing (`dispatch_limit.mode` blind); Headway that uses no
engine to tokenize (`key_source` approximate, as decision 53 advises where engines compute on a CPU). Rates are
multiples of the prefill rate of both engines together, measured before the first round of a sitting, as are Headway's
prefill cost and the objective: twice the time that an idle engine would need for 8,192 uncached tokens.

Rates were chosen before the first repeat that counts. A series at 1.2, 1.5, and 1.8 on a busier machine brought no
rival near 90 % (ADR 0053). On a quiet one, two runs each at 0.9 had 97 % on time or more behind every router.

`--workload hot_prefix`: short questions about one system prompt of about 4,000 tokens, with answers of 128 tokens.
Rates are multiples of the rate at which long answers end while each engine decodes eight. A request is on time if its
TTFT is, and if its time per output token is within 1.5 times the time per token at that load. This definition, the
objective, and the rates 0.8 and 1.1 were chosen before the workload's first run.

On a GPU, `--shape 8b` gives the model the sizes of Llama 3's 8B, with dummy weights. Two engines on one GPU each need a
share of its memory (`--flags`), and CUDA MPS with `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50`, or one has the whole GPU
whenever the other is idle.

A repeat is stored once it is whole (next to the report, by commit), and the same command continues with the missing
ones: repeats can be gathered in several sittings, while the machine is quiet. No repeat begins while others use it.

Verdict, defined before the first run: the best rival at a rate is the one with the largest median share on time. The
rate that counts is the one at which that median is nearest to 90 %. There the median over the repeats of Headway's
share less the best rival's share of the same repeat is to be 0.05 or more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.engines.profile.torch_model import SHAPES
from bench.engines.real_engines_run.answers import RunFigures, answers_of, figures
from bench.engines.real_engines_run.conversations import Asked, conversations, hot_prefix
from bench.engines.real_engines_run.repeats import Repeats, busy_share
from bench.engines.real_engines_run.routers import OUR_WAYS, OURS, READY_S, RIVALS, ways
from bench.engines.real_engines_run.shaped_model import shaped
from bench.engines.real_engines_run.speed import CONTEXT, Speed
from bench.live.live_fleet import API_KEY
from bench.peers.rounds import LEAST_ROUNDS
from bench.report import Target, command_line, commit, write_report
from tests.vllm.real_engine import MODEL, RealEngine

CACHE_BLOCKS = 376
GOAL, WANTED_SHARE = 0.05, 0.9
WORKLOADS = {"conversations": (conversations, [1.1, 1.3, 2.0]), "hot_prefix": (hot_prefix, [0.8, 1.1])}
"""Workloads and their default rates; the last rate of each is an overload."""


def engine(python: str, model: Path, log: Path, flags: Sequence[str]) -> RealEngine:
    """Return an engine whose cache holds few prompts; the caller starts it."""
    sizes = ("--max-model-len", str(CONTEXT), "--max-num-seqs", "16", "--num-gpu-blocks-override", str(CACHE_BLOCKS))
    return RealEngine(python, model, log, flags=(*sizes, *flags))


def until_idle(engines: Sequence[RealEngine]) -> None:
    """Return when no engine has a request in flight."""
    until = time.monotonic() + READY_S
    while any(_busy(item) for item in engines):
        if time.monotonic() > until:
            raise TimeoutError("the engines do not become idle")
        time.sleep(0.2)


def _busy(one: RealEngine) -> float:
    pattern = rb"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$"
    return sum(map(float, re.findall(pattern, one.get("/metrics")[1], re.MULTILINE)))


def one_repeat(
    known: Mapping[str, Sequence[str]],
    engines: Sequence[RealEngine],
    speed: Speed,
    options: argparse.Namespace,
    repeat: int,
) -> dict[str, dict[float, RunFigures]]:
    """Return the figures of each router at each rate. Each repeat starts with the next router in turn.

    Repeat -1 is a short warm-up.
    """
    results: dict[str, dict[float, RunFigures]] = {name: {} for name in known}
    asked = WORKLOADS[options.workload][0](options.requests if repeat >= 0 else 12, options.seed + repeat)
    tokens = statistics.mean(counted(engines[0], item) for item in asked)
    for rate in options.rates if repeat >= 0 else options.rates[:1]:
        for name in _rotated(list(known), repeat):
            bodies = [item.body(MODEL, f"{repeat} {rate} {name}") for item in asked]
            gap_s = 1.0 / (rate * speed.answers_per_s) if speed.answers_per_s else tokens / (rate * speed.tokens_per_s)
            schedule = [(request.at * gap_s, body) for request, body in zip(asked, bodies, strict=True)]
            until_idle(engines)
            answers = asyncio.run(answers_of(known[name], schedule, {"authorization": f"Bearer {API_KEY}"}))
            results[name][rate] = figures(answers, speed.objective_s, speed.tpot_objective_s)
            print(f"{repeat} {rate:g} {name} {results[name][rate]}", flush=True)
    return results


def measure(repeats: Repeats, options: argparse.Namespace) -> None:
    """Measure missing repeats while time remains and the machine is quiet."""
    began = time.monotonic()
    if (busy := busy_share()) > options.busy:
        print(f"others use {busy:.0%} of the machine: nothing is measured in this sitting", flush=True)
        return
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = options.model if options.shape is None else shaped(options.model, SHAPES[options.shape], scratch / "m")
        flags = (*shlex.split(options.flags), *(("--load-format", "dummy") if options.shape else ()))
        engines = [engine(options.python, model, scratch / f"engine-{number}.log", flags) for number in range(2)]
        for item in engines:
            stack.callback(item.kill)
            item.start()
        for item in engines:
            item.wait()
        until_idle(engines)
        own = busy_share()
        known, speed, longest_s = None, None, 0.0
        for repeat in repeats.missing(options.repeats):
            until_idle(engines)
            busy, begins = max(busy_share() - own, 0.0), time.monotonic()
            if busy > options.busy:
                print(f"others use {busy:.0%} of the machine: repeat {repeat} waits for another sitting", flush=True)
                return
            if begins + longest_s > began + 60.0 * options.minutes:
                print(f"repeat {repeat} would take longer than there is time for", flush=True)
                return
            if known is None or speed is None:
                speed = Speed(engines)
                if options.workload == "hot_prefix":
                    speed.measure_answers(engines)
                print(f"{speed.__dict__}", flush=True)
                known = stack.enter_context(ways(scratch, engines, speed))
                one_repeat(known, engines, speed, options, -1)
            results = one_repeat(known, engines, speed, options, repeat)
            until_idle(engines)
            repeats.keep(
                repeat, results, {**speed.__dict__, "busy_before": busy, "busy_after": max(busy_share() - own, 0.0)}
            )
            longest_s = max(longest_s, time.monotonic() - begins)


def counted(one: RealEngine, asked: Asked) -> int:
    """Return the number of a prompt's tokens as counted by the engine."""
    return int(json.loads(one.post("/tokenize", {"model": MODEL, "messages": asked.messages})[1])["count"])


def _rotated(names: list[str], by: int) -> list[str]:
    return names[by % len(names) :] + names[: by % len(names)]


def verdict(results: Mapping[str, Mapping[float, Sequence[RunFigures]]]) -> tuple[dict[str, float], float]:
    """Return the figures by name, and our median lead over the best rival at the deciding rate."""
    reported: dict[str, float] = {}
    for name, by_rate in results.items():
        for rate, runs in by_rate.items():
            for field in (item for item in RunFigures.__struct_fields__ if item != "prompt_tokens"):
                values = sorted(float(getattr(run, field)) for run in runs)
                head = f"{name}_{rate:g}_{field}"
                reported |= {head: statistics.median(values), f"{head}_least": values[0], f"{head}_most": values[-1]}
    rates = list(results[OURS])
    best = {rate: max(RIVALS, key=lambda name: reported[f"{name}_{rate:g}_on_time_share"]) for rate in rates}
    counts = min(rates, key=lambda rate: abs(reported[f"{best[rate]}_{rate:g}_on_time_share"] - WANTED_SHARE))
    for name in OUR_WAYS:
        for rate in rates:
            leads = [
                ours.on_time_share - theirs.on_time_share
                for ours, theirs in zip(results[name][rate], results[best[rate]][rate], strict=True)
            ]
            reported[f"{name}_{rate:g}_lead"] = statistics.median(leads)
            reported |= {f"{name}_{rate:g}_lead_least": min(leads), f"{name}_{rate:g}_lead_most": max(leads)}
    reported["rate_that_counts"] = counts
    return reported, reported[f"{OURS}_{counts:g}_lead"]


def main() -> None:
    """Measure missing repeats, and write the report when all are measured."""
    options = _options()
    settings = {
        "commit": commit(),
        "workload": options.workload,
        "rates": options.rates,
        "requests": options.requests,
        "seed": options.seed,
        "cache_blocks": CACHE_BLOCKS,
        "shape": options.shape,
        "flags": options.flags,
    }
    repeats = Repeats(options.json.with_suffix(""), settings)
    if repeats.missing(options.repeats):
        measure(repeats, options)
    if missing := repeats.missing(options.repeats):
        sys.exit(f"Repeats {', '.join(map(str, missing))} are missing. The same command goes on with them.")
    reported, lead = verdict(repeats.together(options.repeats))
    for repeat in repeats.conditions(options.repeats):
        for name, value in repeat.items():
            reported[f"{name}_most"] = max(value, reported.get(f"{name}_most", value))
            reported[f"{name}_least"] = min(value, reported.get(f"{name}_least", value))
    write_report("real_engines", reported, {"lead": Target(value=lead, op=">=", target=GOAL)}, options.json)


def _options() -> argparse.Namespace:
    parser = command_line("real_engines", __doc__)
    parser.add_argument("--python", default=os.environ.get("VLLM_PYTHON", ""), help="Python with vLLM")
    parser.add_argument("--model", type=Path, default=os.environ.get("VLLM_MODEL", ""))
    parser.add_argument(
        "--shape", choices=SHAPES, help="sizes of a model with dummy weights, instead of --model's, for a GPU"
    )
    # vllm-router's kv_aware lets engines render chats into tokens, on paths that vLLM 0.32 opens with this flag.
    parser.add_argument("--flags", default="--enable-scale-out", help="additional vLLM flags, as one argument")
    parser.add_argument("--rates", type=float, nargs="+", help="relative to the prefill or answer rate")
    parser.add_argument("--workload", choices=WORKLOADS, default="conversations")
    parser.add_argument("--repeats", type=int, default=LEAST_ROUNDS)
    parser.add_argument("--requests", type=int, default=120, help="requests per run")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument(
        "--minutes",
        type=float,
        default=25.0,
        help="duration; repeats that would end later are not started",
    )
    parser.add_argument(
        "--busy", type=float, default=0.2, help="maximum CPU share used by other programs before a repeat"
    )
    options = parser.parse_args()
    options.rates = options.rates or WORKLOADS[options.workload][1]
    if not options.python:
        parser.error("name Python interpreter with vLLM installed: eval export $(.ci/setup-vllm)")
    if options.repeats < LEAST_ROUNDS:
        parser.error(f"two products are compared by {LEAST_ROUNDS} repeats or more")
    return options


if __name__ == "__main__":
    main()
