"""What viewers of the Fleet page cost: `python -m bench.installation.viewers --json OUT [--viewers N] [--engines N]`.

Starts `manage.py up` without the demo, and publishes twice a second a fleet of many engines whose loads change, as a
second gateway would. Viewers read its websocket from this process. The goal is for the web process, which makes and
sends the frames: at most 8 % of a core for 200 viewers of 1,000 engines. The figures without viewers are its part that
following the fleet costs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import aiohttp

from bench.installation.idle import costs
from bench.installation.page_reader import sign_in
from bench.live.live_program import LiveProgram
from bench.report import Target, command_line, write_report

SETTLES_S = 10.0
LIMIT = 0.08
_PUBLISH = """
import random, time
from controlplane.platform.bus import get_bus, join_running
from gateway.bus.follower_bus import FollowerBus
from gateway.contracts.fleet_sample import TOPIC, EngineSample, FleetSample, encode_sample
join_running()
bus, rng, until = FollowerBus(get_bus(), "bench"), random.Random(1), time.time() + {seconds}
works, prompts, number = [rng.uniform(0.0, 2.0) for _ in range({engines})], [0] * {engines}, 0
while time.time() < until:
    number += 1
    for row in range({engines}):
        works[row] = min(8.0, max(0.0, works[row] + rng.gauss(0.0, 0.3)))
        prompts[row] += rng.randrange(1000, 9000)
    engines = tuple(
        EngineSample(
            engine_id=f"e-{{row:04}}", name=f"e-{{row:04}}", pool_id="local", state="serving", incarnation=1,
            since=until - 1000.0, reason="", in_flight_tokens=int(12000 * works[row]), in_flight_s=works[row],
            running=int(5 * works[row]), bound=int(works[row]), oldest_bound_s=works[row] / 4, kv_usage=0.5,
            prompt_tokens_total=prompts[row], cached_tokens_total=int(0.7 * prompts[row]),
            predicted_tokens_total=int(0.7 * prompts[row]), index_trust="exact", report_age_s=0.05,
        )
        for row in range({engines})
    )
    sample = FleetSample(seq=number, at=time.time(), window_s=60.0, snapshot_version=1, engines=engines, pools=())
    bus.publish(TOPIC, encode_sample(sample))
    time.sleep(0.5)
"""


async def _view(session: aiohttp.ClientSession, program: LiveProgram, sizes: list[int]) -> None:
    url = program.url.replace("http", "ws", 1) + "/ws/fleet"
    async with session.ws_connect(url, origin=program.url, max_msg_size=0) as viewer:
        while True:
            sizes.append(len(await viewer.receive_bytes()))


async def watched(program: LiveProgram, viewers: int, seconds: float) -> dict[str, float]:
    """Return the CPU shares of web and gateway with so many viewers, and the frames that one of them receives."""
    sizes: list[int] = []
    connector, jar = aiohttp.TCPConnector(limit=0), aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as session:
        await sign_in(session, program.url, program.secrets.admin_password)
        tasks = [asyncio.create_task(_view(session, program, sizes)) for _ in range(viewers)]
        await asyncio.sleep(SETTLES_S)
        sizes.clear()
        by_name = await asyncio.to_thread(costs, program.pid, seconds)
        failed = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if failed:
        raise RuntimeError(f"{len(failed)} of {viewers} viewers were disconnected")
    figures = {f"{name}_cpu_share": by_name[name].cpu_share for name in ("web", "gateway")}
    if viewers:
        usual = median(sizes) if sizes else 0.0
        figures |= {"frames_per_s": len(sizes) / viewers / seconds, "frame_kb": usual / 1e3}
        figures["keyframe_share"] = sum(size > 2 * usual for size in sizes) / max(1, len(sizes))
    return figures


def main() -> int:
    """Measure, print the report, and return 0 if the web process is within its limit."""
    parser = command_line("viewers", __doc__)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--engines", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    figures: dict[str, float] = {"viewers": options.viewers, "engines": options.engines}
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        program = LiveProgram(Path(name))
        try:
            program.start()
            script = _PUBLISH.format(engines=options.engines, seconds=2 * (options.seconds + SETTLES_S) + 20.0)
            threading.Thread(target=program.shell, args=(script,), daemon=True).start()
            time.sleep(SETTLES_S)
            for kind, viewers in (("alone", 0), ("watched", options.viewers)):
                measured = asyncio.run(watched(program, viewers, options.seconds))
                figures |= {f"{kind}_{what}": value for what, value in measured.items()}
        finally:
            program.stop()
    targets = {"web_cpu_share": Target(value=figures["watched_web_cpu_share"], op="<=", target=LIMIT)}
    return 0 if write_report("viewers", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
