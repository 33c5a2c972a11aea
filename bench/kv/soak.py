"""Node managers under faults: `python -m bench.kv.soak --minutes M --seed S --json OUT --log FILE`.

Several node managers, each with a small disk, serve client processes that put, get, pull, pin, purge, and make
transactions, while nodes are killed and stopped, disks fill up, bits flip in slot files, connections are cut, and
clients are killed. Afterwards the history of every operation is checked: each get returned exactly what was put under
the key, or a miss; no purged, dropped, or rejected block came back; no transaction got a block that another one had
locked. Then no node can still hold a lease, slot, connection, descriptor, or a byte of purged data. All faults are
derived from the seed. Exits with 1 if a check fails.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.kv.soak_run.faults import Fault, schedule
from bench.kv.soak_run.history import Operation, read_history
from bench.kv.soak_run.known_blocks import SECRET
from bench.kv.soak_run.leaks import leaks_of
from bench.kv.soak_run.node_process import ROOT, NodeError, NodeProcess
from bench.kv.soak_run.verdict import Kill, wrong_operations
from bench.report import Target, command_line, write_report

NODES, CLIENTS = 3, 3
_SETTLE_S = 1.0
"""How long clients keep running after the last fault."""
_START_S = 60.0


class Soak:
    """One run. Mutable: nodes, clients, and the faults so far with their times."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.nodes = [NodeProcess(number, folder, seed) for number in range(NODES)]
        self.done: list[tuple[float, Fault]] = []
        self.kills: list[Kill] = []
        self.wrong: list[str] = []
        self._folder, self._seed = folder, seed
        self._rng = random.Random(f"bits {seed}")
        self._clients: dict[int, subprocess.Popen[bytes]] = {}
        self._client_lives = Counter[int]()

    def run(self, seconds: float) -> None:
        """Start everything, execute the schedule, and end the clients."""
        for node in self.nodes:
            node.prepare()
            node.start()
        for number in range(CLIENTS):
            self.start_client(number)
        began = time.monotonic()
        for fault in schedule(self._seed, seconds, NODES, CLIENTS):
            time.sleep(max(0.0, began + fault.at_s - time.monotonic()))
            self.done.append((time.monotonic(), fault))
            self._apply(fault)
        time.sleep(_SETTLE_S)
        self.end_clients()

    def end_clients(self) -> None:
        """Stop all clients after each has started working, because the signal would kill one that is still starting."""
        for number, client in self._clients.items():
            ends_at = time.monotonic() + _START_S
            while client.poll() is None and not self._is_at_work(number) and time.monotonic() < ends_at:
                time.sleep(0.02)
            client.terminate()
        self.wrong += [
            f"client {number} ended with {status}"
            for number, client in self._clients.items()
            if (status := client.wait(120.0))
        ]

    def history(self) -> list[Operation]:
        """Return the operations of all clients."""
        return read_history(sorted(self._folder.glob("client-*.jsonl")))

    def close(self) -> None:
        """End all processes."""
        for client in self._clients.values():
            client.kill()
            client.wait()
        for node in self.nodes:
            node.close()

    def _apply(self, fault: Fault) -> None:
        if fault.kind in ("kill_client", "start_client"):
            self._apply_to_client(fault)
            return
        node = self.nodes[fault.target]
        match fault.kind:
            case "kill":
                began = time.monotonic()
                node.kill()
                self.kills.append((fault.target, began, time.monotonic()))
            case "start":
                self._start(node)
            case "stop":
                node.stop()
            case "go_on":
                node.go_on()
            case "fill":
                node.fill_disk()
            case "free":
                node.free_disk()
            case "flip":
                node.flip_bits(self._rng, fault.amount)
            case "cut":
                node.proxy.cut(fault.amount)

    def _apply_to_client(self, fault: Fault) -> None:
        if fault.kind == "kill_client":
            self._clients[fault.target].kill()
            self._clients[fault.target].wait()
        else:
            self.start_client(fault.target)

    def _start(self, node: NodeProcess) -> None:
        try:
            node.start()
        except NodeError as error:
            self.wrong.append(str(error))

    def _client_name(self, number: int) -> str:
        return f"c{number}.{self._client_lives[number]}"

    def _history_of(self, number: int) -> Path:
        return self._folder / f"client-{self._client_name(number)}.jsonl"

    def _is_at_work(self, number: int) -> bool:
        """Return whether a client has recorded its first operation, after which it handles the signal."""
        path = self._history_of(number)
        return path.exists() and path.stat().st_size > 0

    def start_client(self, number: int) -> None:
        """Start a client."""
        self._client_lives[number] += 1
        command = [sys.executable, "-m", "bench.kv.soak_run.soak_client", self._client_name(number), str(self._seed)]
        command += [str(self._history_of(number)), *(node.proxy.address for node in self.nodes)]
        environment = {**os.environ, "HEADWAY_KV_SECRET": SECRET}
        self._clients[number] = subprocess.Popen(command, cwd=ROOT, env=environment)


def soak(seconds: float, seed: int) -> tuple[dict[str, float], list[str], list[str]]:
    """Return the figures, all violations, and the log's lines."""
    with TemporaryDirectory(prefix="kv-soak-", ignore_cleanup_errors=True) as folder:
        run = Soak(Path(folder), seed)
        try:
            run.run(seconds)
            history = run.history()
            wrong = run.wrong + wrong_operations(history, NODES, run.kills)
            figures = _figures(run, history)
            for node in run.nodes:
                wrong += leaks_of(node)
            wrong += [f"{node.name} ended with {status}" for node in run.nodes if (status := node.end())]
            wrong += [
                f"{node.name} wrote: {line}"
                for node in run.nodes
                for line in node.log_lines()
                if "Traceback" in line or line.startswith(("ERROR", "CRITICAL"))
            ]
        finally:
            run.close()
    return figures | {"seconds": seconds, "seed": seed}, wrong, _log(run, history, wrong)


def _figures(run: Soak, history: Sequence[Operation]) -> dict[str, float]:
    gets = [item for item in history if item.kind == "get"]
    asked = sum(len(get.names) for get in gets)
    faults = Counter(fault.kind for _, fault in run.done)
    counted = sum((node.counted + Counter(node.metrics()) for node in run.nodes if node.running), Counter[str]())
    return {
        "operations": len(history),
        **dict(sorted(Counter(item.kind for item in history).items())),
        "blocks_asked": asked,
        "hit_ratio": round(sum(len(get.hits) for get in gets) / max(asked, 1), 3),
        "rejected": sum(item.outcome == "rejected" for item in history),
        "broken": sum(item.outcome == "broken" for item in history),
        "unknown": sum(not item.outcome for item in history),
        **{f"faults_{kind}": count for kind, count in sorted(faults.items())},
        "connections_cut": sum(node.proxy.cuts for node in run.nodes),
        **{
            name: sum(count for series, count in counted.items() if series.startswith(f"{name}_total"))
            for name in ("corrupt", "repaired", "evicted", "write_through_failed", "pulled", "purged")
        },
        "lives": sum(node.lives for node in run.nodes),
        "on_tmpfs": all(node.on_tmpfs for node in run.nodes),
    }


def _log(run: Soak, history: Sequence[Operation], wrong: Sequence[str]) -> list[str]:
    """Return faults (f) and operations (o: client, kind, node, end, outcome, blocks and how many were hits)."""
    lines = [(at_s, f"f {fault.kind} {fault.target} {fault.amount}") for at_s, fault in run.done]
    lines += [(item.began, _line(item)) for item in history]
    return [*(f"{at_s:.3f} {text}" for at_s, text in sorted(lines)), *(f"WRONG {item}" for item in wrong)]


def _line(operation: Operation) -> str:
    end = "-" if operation.ended is None else f"{operation.ended:.3f}"
    outcome = f"{operation.outcome or '-'} {operation.reason or '-'}"
    blocks = f"{','.join(operation.names)} {len(operation.hits)}"
    return f"o {operation.client} {operation.kind} {operation.node} {end} {outcome} {blocks}"


def main() -> int:
    """Soak, report, and return 1 if a check failed."""
    parser = command_line("kv_soak", __doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("var/bench/kv_soak.log"), metavar="FILE")
    options = parser.parse_args()
    figures, wrong, log = soak(60 * options.minutes, options.seed)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    options.log.write_text("\n".join(log) + "\n", encoding="utf-8")
    figures["load_average"] = round(os.getloadavg()[0], 1)
    write_report("kv_soak", figures, {"wrong": Target(value=float(len(wrong)), op="<=", target=0.0)}, options.json)
    for line in wrong[:40]:
        print(f"wrong: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
