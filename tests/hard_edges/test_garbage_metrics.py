"""R36: an engine with invalid metrics is reported as unreadable and still serves; other engines are unaffected."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from gateway.bus.bus import InProcessBus
from gateway.contracts.engine_report import EngineReport, decode_report
from gateway.contracts.snapshot import EngineEntry
from gateway.pools.engines.engine_metrics import MAX_BYTES
from gateway.pools.engines.prober import probe_engines
from gateway.pools.engines.vllm_adapter import EngineAnswerError, VllmAdapter
from tests.gateway.fake_engine import METRICS, fake_engine
from tests.patience import PATIENCE_S, until

GARBAGE = {
    "not a number": b"vllm:num_requests_running NaN\n",
    "infinite": b"vllm:num_requests_running +Inf\n",
    "negative": b"vllm:num_requests_running -4\n",
    "huge": b"vllm:num_requests_running 1e308\n",
    "usage over one": b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 17\n",
    "ten megabytes": METRICS * (10_000_000 // len(METRICS) + 1),
    "a page": b"<!doctype html><html><body>502 Bad Gateway</body></html>",
    "JSON": b'{"error": "no such path"}',
    "nothing": b"",
    "bytes": bytes(range(256)) * 40,
    "a label bomb": b"vllm:num_requests_running{" + b'a="b",' * 200_000 + b"} 1\n",
    "a wrong type": b'vllm:num_requests_running{model_name="m"} many\n',
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_invalid_metrics_are_rejected_and_do_not_affect_other_engines(garbage: bytes) -> None:
    bus, stop = InProcessBus(), asyncio.Event()
    reports: dict[str, list[EngineReport]] = {"bad": [], "good": []}
    bus.subscribe("load/", lambda _, value: reports[(report := decode_report(value)).engine_id].append(report))
    async with fake_engine() as bad, fake_engine() as good:
        bad.set("/metrics", 200, garbage, content_type="text/plain")
        targets = [
            EngineEntry(engine_id=name, name=name, pool_id="p", url=engine.url)
            for name, engine in (("bad", bad), ("good", good))
        ]
        probing = asyncio.create_task(
            probe_engines(lambda: targets, bus, stop, light_interval_s=0.05, full_interval_s=0.1, timeout_s=2.0)
        )
        await until(lambda: len(reports["bad"]) >= 3 and len(reports["good"]) >= 4)
        stop.set()
        await probing
    last = reports["bad"][-1]
    assert last.reason.startswith("metrics are unreadable: ")
    assert last.reason.isprintable()
    assert len(last.reason) < 400
    assert (last.reachable, last.healthy, last.readable, last.serves) == (True, False, False, True)
    assert all(report.healthy and report.running is not None for report in reports["good"])


@pytest.mark.parametrize(("chunked", "plain"), [(False, True), (False, False), (True, True)])
async def test_long_response_is_read_only_up_to_its_limit(chunked: bool, plain: bool) -> None:
    """Unread bytes use no memory of the process. Socket buffers hold some megabytes that are never read."""
    piece, pieces, sent = METRICS * (65_536 // len(METRICS)), 800, 0
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(piece) * pieces}"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{length}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(pieces):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
                sent += len(piece)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, aiohttp.ClientSession() as session:
        adapter = VllmAdapter(session, url, served_model="m", timeout_s=PATIENCE_S, plain=plain)
        with pytest.raises(EngineAnswerError, match=f"more than {MAX_BYTES} bytes"):
            await adapter.load(with_waiting=True)
        adapter.close()
    assert sent < 12 * MAX_BYTES < len(piece) * pieces / 2
