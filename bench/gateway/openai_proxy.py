"""CPU of a streamed chat in each OpenAI-compatible proxy: `python -m bench.gateway.openai_proxy --json OUT`.

Two engines stream 64 chunks, one every 2 ms, to eight concurrent streams with prompts of 2 KB. In turn: nginx that only
forwards requests, Headway's own proxy (decision, queue, records), sglang-router cache_aware, LiteLLM. The figure is the
CPU time (user and system) of each proxy's processes per request, as the lowest and the median round. Needs nginx.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bench.gateway.proxy import PEER, keep_snapshot, plain_nginx
from bench.gateway.proxy_run.instant_engine import MODEL
from bench.gateway.proxy_run.streams import bodies, stream_all
from bench.live.live_fleet import API_KEY, start_gateway, wait_for
from bench.live.loopback_ports import free_ports
from bench.live.process_cpu import cpu_s
from bench.peers.environment import peer_python
from bench.peers.rounds import LEAST_ROUNDS, quietest_and_median, ratios
from bench.report import Target, command_line, write_report

LITELLM = "litellm[proxy]==1.100.5"
OURS = "headway"
TARGET = 0.1
_QUIET = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}


class Way(msgspec.Struct, frozen=True):
    """One running proxy."""

    port: int
    pid: int


def started(
    stack: ExitStack, command: Sequence[str | Path], log: Path = Path(os.devnull), /, **environment: str
) -> int:
    """Run a command until the stack is closed, its output in `log`. Return its process id."""
    with log.open("wb") as output:
        running = subprocess.Popen(command, env={**os.environ, **environment}, stdout=output)
    stack.callback(_end, running)
    return running.pid


def _end(running: subprocess.Popen[bytes]) -> None:
    """Terminate a process. sglang-router waits for its connections, so it is killed."""
    running.terminate()
    try:
        running.wait(5.0)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


def litellm_settings(folder: Path, engines: Sequence[int]) -> Path:
    """Write settings with which LiteLLM spreads the model over the engines."""
    lines = ["model_list:"]
    for port in engines:
        lines += [
            f"  - model_name: {MODEL}",
            f"    litellm_params: {{model: openai/{MODEL}, api_base: 'http://127.0.0.1:{port}/v1', api_key: none}}",
        ]
    path = folder / "litellm.yaml"
    path.write_text("\n".join([*lines, "litellm_settings: {telemetry: false}", ""]))
    return path


@contextmanager
def ways(scratch: Path) -> Iterator[Mapping[str, Way]]:
    """Start engines and proxies. Yields the proxies by name."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        raise RuntimeError("bench.gateway.openai_proxy needs nginx (Debian: nginx)")
    router, litellm = peer_python("sglang-router", PEER), peer_python("litellm", LITELLM)
    one, two, plain, gateway, routed, metrics, spread = free_ports(7)
    folders = {name: scratch / name for name in ("state", "plain")}
    for folder in folders.values():
        folder.mkdir()
    keep_snapshot(folders["state"], (one, two))
    with ExitStack() as stack:
        for port in (one, two):
            started(stack, [sys.executable, "-m", "bench.gateway.proxy_run.instant_engine", str(port)])
        for port in (one, two):
            wait_for(f"http://127.0.0.1:{port}/health")
        live = start_gateway(folders["state"], gateway)
        stack.callback(live.wait)
        stack.callback(live.terminate)
        settings = litellm_settings(scratch, (one, two))
        pids = {
            "nginx": started(stack, [nginx, "-c", plain_nginx(folders["plain"], plain, (one, two))]),
            OURS: live.pid,
            "sglang_router": started(stack, [
                router, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(routed),
                "--worker-urls", f"http://127.0.0.1:{one}", f"http://127.0.0.1:{two}", "--policy", "cache_aware",
                "--prometheus-port", str(metrics), "--prometheus-host", "127.0.0.1", "--log-level", "error",
            ]),
            "litellm": started(stack, [
                litellm.parent / "litellm", "--config", settings, "--host", "127.0.0.1", "--port", str(spread),
            ], **_QUIET),
        }  # fmt: skip
        ports = {"nginx": plain, OURS: gateway, "sglang_router": routed, "litellm": spread}
        ready = {**dict.fromkeys(ports, "/health"), OURS: "/ready", "litellm": "/health/liveliness"}
        for name, port in ports.items():
            wait_for(f"http://127.0.0.1:{port}{ready[name]}")
        yield {name: Way(port, pids[name]) for name, port in ports.items()}


def one_round(known: Mapping[str, Way], asked: Sequence[bytes]) -> dict[str, float]:
    """Return the CPU milliseconds of one request in each proxy."""
    figures = {}
    for name, way in known.items():
        before = cpu_s(way.pid)
        url = f"http://127.0.0.1:{way.port}/v1/chat/completions"
        asyncio.run(stream_all(url, asked, {"authorization": f"Bearer {API_KEY}"}))
        figures[f"{name}_cpu_ms"] = (cpu_s(way.pid) - before) / len(asked) * 1e3
    return figures


def main() -> None:
    """Measure and write the report."""
    parser = command_line("openai_proxy", __doc__)
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS)
    parser.add_argument("--requests", type=int, default=200, help="requests per round and proxy")
    arguments = parser.parse_args()
    asked = bodies(arguments.requests)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # nginx's workers run as another user
        with ways(Path(scratch)) as known:
            rounds = [one_round(known, asked) for _ in range(max(arguments.rounds, LEAST_ROUNDS) + 1)][1:]
    figures = quietest_and_median(rounds)
    for peer in ("nginx", "sglang_router", "litellm"):
        figures |= ratios(figures, f"{OURS}_cpu_ms", f"{peer}_cpu_ms", f"over_{peer}")
    targets = {"over_litellm": Target(value=figures["over_litellm"], op="<=", target=TARGET)}
    write_report("openai_proxy", figures, targets, arguments.json)


if __name__ == "__main__":
    main()
