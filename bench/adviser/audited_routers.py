"""Predicted and measured gains of a switch from real routers: `python -m bench.adviser.audited_routers --json OUT`.

Routers: sglang-router and vllm-router from PyPI with their default policy, cache_aware. A round serves 260 rows of the
toolagent_like trace twice, each time with 4 new engines with empty caches: through the router, then through a Headway
gateway with the default policy, whose engine costs are known, as a live pool learns them. Engines are simulated servers
with their real HTTP API and KV events, 1.25 times faster than those that an audit starts from, with 600 blocks instead
of 1,953. Each round has other rows, with Poisson arrivals, 6.9 per second: prefills then use 48 to 68 % of the engines'
time (the rate was chosen in the simulator, before any round).

The audit reads what an operator can know, not the engines' profile: a CSV of the client (times, usage, hashes of prompt
blocks), and the engine of each request. That is in sglang-router's log, which is read as it is (`--log-level debug`).
vllm-router's log names engines without requests; there, engines serve the model under a name of their own as well,
which their answers state.

Definition of agreement, written before the first round. The measured gain is the client's mean time to first token
(TTFT) through the router less that through Headway, of the same requests. It agrees if it is within the range that the
audit states for the gain. Claim: it agrees in 3 of 3 rounds of each router. The width of the ranges is reported, since
one that is wide enough covers everything. A round counts if every request is answered and none was sent more than
0.25 s late: otherwise the machine was too busy. A late round is repeated, up to --tries. A request without an answer
ends the sitting. Each round is stored next to the report, and the same command continues with the missing ones.
HEADWAY_TRACES names the folder of the traces.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bench.adviser.logged_client import ClientRecord, records_of, write_csv
from bench.engines.real_engines_run.routers import VLLM_ROUTER, register
from bench.evidence.traces import MAX_INPUT, whole_trace
from bench.gateway.openai_proxy import started
from bench.gateway.proxy import PEER
from bench.live.live_fleet import API_KEY, MODEL, engine_command, engine_entry, start_gateway, stored_snapshot, wait_for
from bench.live.loopback_ports import free_ports
from bench.peers.environment import peer_python
from bench.report import Target, command_line, write_report
from controlplane.router_audit.audit import AuditResult, audited
from controlplane.router_audit.audited_fleet import audited_fleet
from controlplane.router_audit.engine_fit import ENGINE_MODELS, fitted_engine
from controlplane.router_audit.log_files import read_log
from controlplane.router_audit.rebuild import Assumptions
from planning.router_audit.audit_summary import FigureRange
from planning.router_audit.logged_request import RequestLog
from routing.policy.policy_document import RoutingPolicy
from simulator.engine_models.engine_profile import EngineProfile
from simulator.replay.replay_options import ReplayOptions
from simulator.workloads.arrival_pattern import poisson_times
from simulator.workloads.arrivals import prompt_tokens
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

HEADWAY = "headway"
ROUTERS = {"sglang_router": ("sglang-router", PEER), "vllm_router": ("vllm-router", VLLM_ROUTER)}
ROUNDS, ENGINES, REQUESTS, RATE, BLOCKS = 3, 4, 260, 6.9, 600
OBJECTIVE_S, LATE_S, SPEED = 5.0, 0.25, 1.25
_FIRST, _STRIDE = 2000, 3000
"""First row of the first round, and rows between the first rows of two rounds."""
_PROFILE = EngineProfile(recompute_last_block=True)
"""The engines' costs at speed 1, which are also where the audit's fit starts."""


class AuditedRound(msgspec.Struct, frozen=True):
    """One round. Times in seconds; hits and use are shares."""

    before_s: float
    """Mean TTFT through the router."""
    after_s: float
    """Mean TTFT through Headway."""
    predicted_s: float
    """The audit's gain, then its range."""
    low_s: float
    high_s: float
    hits_before: float
    hits_after: float
    prefill_use: float
    """Share of the engines' time that prefills took behind the router."""
    late_s: float
    """Largest delay of a request at the client."""

    @property
    def gain_s(self) -> float:
        """Return the measured gain."""
        return self.before_s - self.after_s

    @property
    def counts(self) -> bool:
        """Return whether all requests were sent on time."""
        return self.late_s <= LATE_S

    @property
    def agrees(self) -> bool:
        """Return whether the measured gain is in the audit's range."""
        return self.low_s <= self.gain_s <= self.high_s


def rows_of(number: int, trace: Sequence[TraceRow]) -> list[TraceRow]:
    """Return the rows of a round, with new times of arrival."""
    first = _FIRST + number * _STRIDE
    times = poisson_times(random.Random(number), RATE)
    return [
        replace(
            row,
            timestamp=round(next(times) * 1000, 3),
            input_length=(length := prompt_tokens(row, MAX_INPUT)),
            hash_ids=row.hash_ids[: -(-length // BLOCK_TOKENS)],
        )
        for row in trace[first : first + REQUESTS]
    ]


@contextmanager
def fleet_behind(router: str, scratch: Path) -> Iterator[str]:
    """Run new engines behind a router, which writes `scratch`/router.log, or behind Headway. Yields its address."""
    ports = free_ports(3 * ENGINES + 2)
    entries = tuple(engine_entry(number, ports, SPEED) for number in range(ENGINES))
    options = ["--time-scale", str(SPEED), "--block-size", str(BLOCK_TOKENS), "--num-blocks", str(BLOCKS)]
    with ExitStack() as stack:
        for number, entry in enumerate(entries):
            named = ["--stream-interval", "8", "--served-model-name", entry.name, MODEL]
            started(stack, engine_command(ports[3 * number : 3 * number + 3], [*options, *named]))
        for entry in entries:
            wait_for(f"{entry.url}/health")
        urls, url = [entry.url for entry in entries], f"http://127.0.0.1:{ports[-1]}"
        if router == HEADWAY:
            stored_snapshot(scratch, RoutingPolicy(ttft_slo_s=OBJECTIVE_S), BLOCK_TOKENS, entries)
            gateway = start_gateway(scratch, ports[-1])
            stack.callback(gateway.wait)
            stack.callback(gateway.terminate)
            wait_for(f"{url}/ready")
        else:
            started(stack, [
                peer_python(*ROUTERS[router]), "-m", f"{router}.launch_router", "--host", "127.0.0.1",
                "--port", str(ports[-1]), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(ports[-2]),
                "--log-level", "debug", "--worker-urls", *urls,
            ], scratch / "router.log")  # fmt: skip
            wait_for(f"{url}/health")
            if router == "sglang_router":
                register(f"{url}/workers", urls)
        yield url


def served(router: str, rows: Sequence[TraceRow], scratch: Path) -> list[ClientRecord]:
    """Serve the rows with new engines behind a router, or behind Headway, and return the client's records."""
    with fleet_behind(router, scratch) as url:
        return asyncio.run(records_of(rows, ReplayOptions(target=url, model=MODEL, api_key=API_KEY)))


def audit_of(router: str, rows: Sequence[TraceRow], records: Sequence[ClientRecord], scratch: Path) -> AuditResult:
    """Return the audit of a run, as `headway audit-router --engines 4` computes it."""
    log, known = RequestLog(), router != "sglang_router"
    read_log(log, write_csv(scratch / "client.csv", rows, records, engines=known), "csv")
    if not known:
        # The client's times are finer, and the first log that states a time counts.
        read_log(log, scratch / "router.log", "sglang")
    fleet = audited_fleet(log.requests(), str(ENGINES))
    if len(fleet.chosen) != len(rows):
        raise RuntimeError(f"the logs of {router} name the engines of {len(fleet.chosen)} of {len(rows)} requests")
    start = Assumptions(name="start", profile=_PROFILE, engine_model=ENGINE_MODELS[0], ttft_slo_s=OBJECTIVE_S)
    fit = fitted_engine(fleet, start, "round_robin", given=False, on_step=lambda: None)
    return audited(fleet, fit, "round_robin", lambda: None)


def round_of(before: Sequence[ClientRecord], after: Sequence[ClientRecord], gain: FigureRange) -> AuditedRound:
    """Return a round's figures."""
    work_s = sum(_PROFILE.prefill_s(record.prompt_tokens, record.cached_tokens) for record in before)
    return AuditedRound(
        before_s=statistics.fmean(record.ttft_s for record in before),
        after_s=statistics.fmean(record.ttft_s for record in after),
        predicted_s=gain.value,
        low_s=gain.low,
        high_s=gain.high,
        hits_before=_hits(before),
        hits_after=_hits(after),
        prefill_use=work_s / SPEED / ENGINES / (before[-1].sent_s - before[0].sent_s),
        late_s=max(record.late_s for record in (*before, *after)),
    )


def _hits(records: Sequence[ClientRecord]) -> float:
    return sum(record.cached_tokens for record in records) / sum(record.prompt_tokens for record in records)


def one_round(router: str, rows: Sequence[TraceRow]) -> AuditedRound:
    """Serve the rows by the router and by Headway, and audit the router."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        before, after = (served(name, rows, scratch) for name in (router, HEADWAY))
        return round_of(before, after, audit_of(router, rows, before, scratch).gain_s)


def verdict(results: Mapping[str, Sequence[AuditedRound]]) -> tuple[dict[str, float], dict[str, Target]]:
    """Return all figures by name, and for each router the rounds that agree as a target."""
    figures: dict[str, float] = {}
    targets = {}
    for router, rounds in results.items():
        for number, item in enumerate(rounds, 1):
            named = {**msgspec.structs.asdict(item), "gain_s": item.gain_s, "width_s": item.high_s - item.low_s}
            figures |= {f"{router}_{number}_{name}": value for name, value in named.items()}
        figures[f"{router}_counted"] = sum(item.counts for item in rounds)
        figures[f"{router}_agrees_counted_or_not"] = sum(item.agrees for item in rounds)
        agreed = sum(item.counts and item.agrees for item in rounds)
        targets[f"{router}_agrees"] = Target(value=agreed, op=">=", target=len(rounds))
    return figures, targets


def counted(measure: Callable[[], AuditedRound], tries: int) -> AuditedRound:
    """Return the first round that counts, or the last of `tries`."""
    while not (measured := measure()).counts and tries > 1:
        print(f"not counted: {measured}", flush=True)
        tries -= 1
    return measured


def main() -> None:
    """Measure the missing rounds, store each, and write the report."""
    parser = command_line("audited_routers", __doc__)
    parser.add_argument("--tries", type=int, default=4, help="maximum number of tries until a round counts")
    options = parser.parse_args()
    trace, results = whole_trace("toolagent_like"), dict[str, list[AuditedRound]]()
    folder: Path = options.json.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(ROUNDS * len(ROUTERS)):
        router, path = list(ROUTERS)[number // ROUNDS], folder / f"{number}.json"
        if not path.exists():
            print(f"round {number % ROUNDS + 1} of {router}", flush=True)
            measured = counted(partial(one_round, router, rows_of(number, trace)), options.tries)
            print(f"{measured} gain_s={measured.gain_s:.3f} agrees={measured.agrees}", flush=True)
            path.write_bytes(msgspec.json.encode(measured))
        results.setdefault(router, []).append(msgspec.json.decode(path.read_bytes(), type=AuditedRound))
    write_report("audited_routers", *verdict(results), options.json)


if __name__ == "__main__":
    main()
