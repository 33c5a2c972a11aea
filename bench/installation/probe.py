"""The CPU cost of probing: one worker process watches 500 engines, light reads at 100 ms, full ones at 2 s.

The engines are one child process that answers GET /load, /metrics, and /health with bytes like vLLM's, so that only the
reader's time counts. Five shards run in one loop, as in the probe job.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections import Counter
from functools import partial
from multiprocessing.connection import Connection

import uvloop
from typing_extensions import override

from bench.report import Target, command_line, write_report
from gateway.bus.bus import InProcessBus
from gateway.contracts.engine_report import decode_report
from gateway.contracts.snapshot import EngineEntry
from gateway.pools.engines.prober import probe_engines

ENGINES, SHARDS = 500, 5
LIGHT_S, FULL_S = 0.1, 2.0
_FILLER = "".join(
    f'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="{bound}",model_name="bench-8b"}} 12345.0\n'
    for bound in range(300)
)
_METRICS = f"""process_start_time_seconds 1000.5
vllm:num_requests_running{{engine="0",model_name="bench-8b"}} 3.0
vllm:num_requests_waiting{{engine="0",model_name="bench-8b"}} 2.0
vllm:kv_cache_usage_perc{{engine="0",model_name="bench-8b"}} 0.25
vllm:prompt_tokens_total{{engine="0",model_name="bench-8b"}} 1658.0
vllm:generation_tokens_total{{engine="0",model_name="bench-8b"}} 768.0
vllm:cache_config_info{{block_size="16",num_gpu_blocks="4096",engine="0"}} 1.0
{_FILLER}"""


def _answer(body: str, kind: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: {len(body)}\r\ncontent-type: {kind}\r\n\r\n"
    return (head + body).encode()


_ANSWERS = {
    b"/load": _answer('{"server_load":5}', "application/json"),
    b"/metrics": _answer(_METRICS, "text/plain; version=1.0.0; charset=utf-8"),
    b"/health": _answer("", "application/json"),
}


class _Engine(asyncio.Protocol):
    """One connection to an engine."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        answer = _ANSWERS[path[path.rindex(b"/") :]]
        self._transport.write(answer)  # type: ignore[attr-defined]


def _serve(sender: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Engine, "127.0.0.1", 0, backlog=1024)
        sender.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


def _every(entries: list[EngineEntry], shard: int) -> list[EngineEntry]:
    return entries[shard::SHARDS]


async def measure(port: int, warm_up_s: float, seconds: float) -> tuple[float, list[int], Counter[str]]:
    """Return CPU seconds per second, reads per engine, and failures by reason."""
    bus, stop = InProcessBus(), asyncio.Event()
    names = [f"e-{number:03d}" for number in range(ENGINES)]
    entries = [EngineEntry(engine_id=n, name=n, pool_id="p", url=f"http://127.0.0.1:{port}/{n}") for n in names]
    reads: Counter[str] = Counter()
    # Publishing is a worker's work and receiving the gateways', so the subscriber only counts.
    bus.subscribe("load/", lambda topic, _: reads.update((topic,)))
    shards = [
        asyncio.create_task(
            probe_engines(
                partial(_every, entries, shard),
                bus,
                stop,
                light_interval_s=LIGHT_S,
                full_interval_s=FULL_S,
                shard=shard,
                fence=1,
            )
        )
        for shard in range(SHARDS)
    ]
    await asyncio.sleep(warm_up_s)
    reads.clear()
    began_s, cpu_s = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    cpu_share = (time.process_time() - cpu_s) / (time.monotonic() - began_s)
    counts = [reads[f"load/{name}"] for name in names]
    last = [decode_report(value) for value in (bus.latest(f"load/{name}") for name in names) if value is not None]
    stop.set()
    await asyncio.gather(*shards)
    return cpu_share, counts, Counter(report.reason for report in last if not report.healthy)


def main() -> None:
    """Measure and write the result."""
    parser = command_line("probe", __doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    engines = multiprocessing.Process(target=_serve, args=(sender,), daemon=True)
    engines.start()
    try:
        cpu_share, counts, wrong = uvloop.run(measure(receiver.recv(), 3.0, options.seconds))
    finally:
        engines.kill()
        engines.join()
    if wrong:
        print(f"unhealthy: {dict(wrong)}")
    rates = [count / options.seconds for count in counts]
    figures = {
        "engines": float(ENGINES),
        "reads_per_engine_s": statistics.median(rates),
        "reads_per_engine_s_least": min(rates),
        "cpu_us_per_read": 1e6 * cpu_share / (sum(rates) or 1.0),
        "cpu_ms_per_engine_s": 1e3 * cpu_share / ENGINES,
        "unhealthy": float(sum(wrong.values())),
    }
    targets = {
        "cpu_of_one_core": Target(value=cpu_share, op="<=", target=0.8),
        "least_reads_per_engine_s": Target(value=min(rates), op=">=", target=8.0),
    }
    write_report("probe", figures, targets, options.json)


if __name__ == "__main__":
    main()
