"""Run Dynamo's offline replay and print its summaries as JSON, in the peer's own interpreter.

Arguments: trace file (plain JSONL), engines, blocks per engine, speed-up. DYN_LOG=error keeps its log short.
"""

import json
import sys


def main() -> None:
    """Replay under both router modes."""
    from dynamo._core import run_mocker_trace_replay

    trace, engines, blocks, speed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    summaries = {}
    for mode in ("round_robin", "kv_router"):
        report = run_mocker_trace_replay(
            [trace],
            num_workers=engines,
            router_mode=mode,
            replay_mode="offline",
            trace_block_size=512,
            arrival_speedup_ratio=speed,
            extra_engine_args={"engine": {"block_size": 512, "num_gpu_blocks": blocks}},
        )
        summaries[mode] = {
            name: report.summary[name]
            for name in ("prefix_cache_reused_ratio", "mean_ttft_ms", "p99_ttft_ms", "completed_requests")
        }
    print(json.dumps(summaries))


if __name__ == "__main__":
    main()
