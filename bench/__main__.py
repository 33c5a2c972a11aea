"""Runs every benchmark that needs no other product: `python -m bench`."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "decision",
    "decision_api",
    "decision_records",
    "eviction",
    "isolation",
    "kv_transfer",
    "owner",
    "paired_replay",
    "probe",
    "publish_storm",
    "queue",
    "simulate_speed",
    "sizing",
    "slow_clients",
    "start",
)


def main() -> int:
    """Run them one after the other and return how many failed to run."""
    failed = 0
    for name in BENCHMARKS:
        print(f"== bench.{name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
