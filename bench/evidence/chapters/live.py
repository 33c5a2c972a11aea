"""Chapter: is the simulator right? Against live processes, and against another simulator."""

from __future__ import annotations

from itertools import permutations

from bench.evidence.claims import percent
from bench.evidence.store import MissingResultError, Result, load
from bench.paired_simulation import MOST_APART


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

Live times carry what the machine adds (HTTP, tokenising, scheduling of processes); the ratios of the times differ from the
simulator's by {percent(_apart(result))} at most. A test asks for the same ranking and for ratios within
{percent(MOST_APART, 0)} in `make test-thorough`. No rule of a paper is among these: that is to be measured.
"""


def _apart(result: Result) -> float:
    """Return how far the simulated ratio of two placements' times is from the live one, at worst."""
    times = [(float(str(row["live_ttft_mean_s"])), float(str(row["simulated_ttft_mean_s"]))) for row in result.rows]
    return max(
        abs(told / other_told * other_live / live - 1)
        for (live, told), (other_live, other_told) in permutations(times, 2)
    )


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
