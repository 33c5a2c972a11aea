"""Chapter: is the simulator right? Against live processes, and against another simulator."""

from __future__ import annotations

from bench.evidence.store import MissingResultError, load


def text() -> str:
    """Return the chapter."""
    return "## Is the simulator right?\n\n" + _live() + "\n" + _peer()


def _live() -> str:
    result = load("paired_simulation")
    lines = ["| placement | mean TTFT live | simulated | hit tokens live | simulated |", "|---|---:|---:|---:|---:|"]
    for row in result.rows:
        lines.append(
            f"| {row['placement']} | {row['live_ttft_mean_s']:.3f} s | {row['simulated_ttft_mean_s']:.3f} s "
            f"| {100 * float(str(row['live_hit_rate'])):.1f} % | {100 * float(str(row['simulated_hit_rate'])):.1f} % |"
        )
    return f"""**Against live processes.** The same rows through a gateway and eight simulated engines, each a process in
scaled time, and through the simulator (`{result.command}`):

{chr(10).join(lines)}

Live times carry what the machine adds (HTTP, tokenising, scheduling of processes); the ranking and the ratios are the
simulator's, within 15 %. A test repeats this on every run of the test suite.
"""


def _peer() -> str:
    try:
        result = load("dynamo_replay")
    except MissingResultError:
        return "**Against another simulator.** Not measured yet: run `make bench-peers`.\n"
    lines = [
        "| simulator | setting | reuse, round robin | reuse, KV-aware | ratio | mean TTFT ratio | p99 TTFT ratio |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in result.rows:
        lines.append(
            f"| {row['simulator']} | {row['setting']} | {100 * float(str(row['reuse_round_robin'])):.1f} % "
            f"| {100 * float(str(row['reuse_kv'])):.1f} % | {row['reuse_ratio']:.2f} | {row['ttft_mean_ratio']:.2f} "
            f"| {row['ttft_p99_ratio']:.2f} |"
        )
    return f"""**Against another simulator.** NVIDIA Dynamo's offline replay with its mock engines and ours with `chunked`
engines of the same size, on the whole conversation trace (`{result.command}`); KV-aware over round robin in each:

{chr(10).join(lines)}

{result.settings["differences"]}
"""
