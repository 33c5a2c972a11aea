"""Run every benchmark that needs no other product: `python -m bench`."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "routing.decision",
    "gateway.decision_api",
    "gateway.decision_records",
    "simulator.eviction",
    "installation.idle",
    "installation.isolation",
    "kv.transfer",
    "gateway.owner",
    "routing.paired_replay",
    "installation.probe",
    "installation.publish_storm",
    "routing.queue",
    "simulator.speed",
    "gateway.sizing",
    "gateway.slow_clients",
    "installation.start",
    "regions.agreement",
)


def main() -> int:
    """Run the benchmarks one by one and return the number of failures."""
    failed = 0
    for name in BENCHMARKS:
        print(f"== bench.{name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
