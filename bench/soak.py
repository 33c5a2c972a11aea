"""The whole program under its demo load for a while: `python -m bench.soak --minutes M`.

Starts `manage.py up` with a state directory of its own, follows memory and errors, and reports
requests, failures and the slope of resident memory after the first quarter (warm-up).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from bench.live_fleet import free_ports, wait_for
from bench.report import Target, write_report

_SAMPLE_S = 5.0
_OUTCOME = re.compile(r'^switchyard_requests_total\{.*outcome="(\w+)".*\} ([0-9.e+]+)$', re.MULTILINE)


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB; raises FileNotFoundError once it is gone."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def outcomes(url: str) -> dict[str, float]:
    """Return the finished requests by outcome, as the gateway counts them."""
    with urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - our own loopback address
        text = answer.read().decode()
    counts: dict[str, float] = {}
    for name, value in _OUTCOME.findall(text):
        counts[name] = counts.get(name, 0.0) + float(value)
    return counts


def slope_mib_per_min(samples: list[tuple[float, float]]) -> float:
    """Return the least-squares slope of (seconds, MiB) samples, in MiB per minute."""
    times, sizes = zip(*samples, strict=True)
    return statistics.linear_regression(times, sizes).slope * 60


def soak(minutes: float) -> dict[str, float]:
    """Run the program and return the figures."""
    port = free_ports(1)[0]
    with TemporaryDirectory() as state_dir:
        environment = {**os.environ, "SWITCHYARD_STATE_DIR": state_dir}
        command = [sys.executable, "manage.py", "up", "--demo", "--with-parent", "--port", str(port)]
        program = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(f"{url}/ready", 60.0)
            samples = _sample(program.pid, minutes * 60)
            counts = outcomes(url)
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(20)
    warm = samples[len(samples) // 4 :]
    return {
        "minutes": minutes,
        "requests": sum(counts.values()),
        "failed": counts.get("failed", 0.0),
        "refused": counts.get("refused", 0.0),
        "resident_mib_end": round(samples[-1][1], 1),
        "resident_mib_per_min": round(slope_mib_per_min(warm), 3),
    }


def _sample(pid: int, seconds: float) -> list[tuple[float, float]]:
    start = time.monotonic()
    samples = []
    while (passed := time.monotonic() - start) < seconds:
        samples.append((passed, resident_mib(pid)))
        print(f"\r{passed / 60:5.1f} of {seconds / 60:.0f} min, {samples[-1][1]:.0f} MiB", end="", flush=True)
        time.sleep(_SAMPLE_S)
    print()
    return samples


def main() -> None:
    """Soak and report; the targets are no failed request and no memory that grows for ever."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", type=Path, default=Path("var/bench/soak.json"), metavar="OUT")
    options = parser.parse_args()
    figures = soak(options.minutes)
    targets = {
        "failed": Target(value=figures["failed"], op="<=", target=0.0),
        "resident_mib_per_min": Target(value=figures["resident_mib_per_min"], op="<=", target=1.0),
    }
    write_report("soak", figures, targets, options.json)


if __name__ == "__main__":
    main()
