"""Chapter: engines that are sick and answer /health with 200."""

from __future__ import annotations

from bench.evidence.claims import Claim, judged, percent
from bench.evidence.measure.health import (
    BURST_QPS,
    BURST_S,
    ENGINES,
    FAULT_S,
    HEALED_S,
    KINDS,
    PERIOD_S,
    QPS,
    UNGUARDED,
)
from bench.evidence.store import Row, Value, load

WORDS = {
    "hang": "hangs: takes requests, brings nothing",
    "crawl": "crawls: everything takes six times as long",
    "lie": "lies: hangs while its counters grow",
    "stop": "is stopped (SIGSTOP): no probe is answered",
    "flap": "restarts every 20 s",
    "pause": "is paused and says so",
    "never_starts": "starts nothing new and does not say so",
    "garbage": "serves, with nonsense as metrics",
    "frozen": "serves, and its metrics stand",
    "frozen_hang": "hangs after its metrics have stood for a while",
}
SERVING = ("garbage", "frozen")
"""Faults of the metrics only: the engine serves, so it becomes a suspect and keeps its work."""
FOUND_WITHIN_S = 60.0


def row(kind: str, *, health: bool = True) -> Row:
    """Return the run of a fault."""
    return load("health").find(kind=kind, health=health)


def healthy() -> list[Row]:
    """Return the hours without a fault."""
    return load("health").where(kind="none")


def text() -> str:
    """Return the chapter."""
    hours = healthy()
    wrongly = sum(len(_list(each["wrongly"])) for each in hours)
    suspects = sum(int(str(each["suspects"])) for each in hours)
    worst = min(float(str(each["on_time"])) for each in hours)
    return f"""## Sick engines

One of {ENGINES} co-located engines falls ill at {FAULT_S:g} s and is well again, or restarted, at {HEALED_S:g} s. Generated conversation, {QPS:g} requests/s and
{BURST_QPS:g} in bursts of {BURST_S:g} s every {PERIOD_S:g} s, more than the fleet can serve. Health is judged once a second. *Found*: until the engine is quarantined;
what has no first token by then goes to another engine.

| the engine … | found after | as | lost without a first token | broken off | longest TTFT | … without health | full share again after |
|---|---:|---|---:|---:|---:|---:|---:|
{chr(10).join(_line(kind) for kind in KINDS)}

In {len(hours)} hours of the same traffic without a fault, in the worst of which only {percent(worst)} of the requests were on time, {wrongly} engines were
quarantined; {suspects} times one was a suspect for a while, which costs it no work.

Even without health the router sends a hung engine little: its own ledger shows work there that does not end, and the work waits at the gateway. What it
had is lost for as long as it hangs. An engine whose metrics are nonsense, or stand, still serves, so it stays, as a suspect; its word counts for nothing. That
metrics stand is told from answers that came meanwhile, so an idle engine's are not doubted; and once it hangs, only the gateway's own requests prove it.
"""


def _line(kind: str) -> str:
    found = row(kind)
    bare = f"{row(kind, health=False)['worst_ttft_s']:.0f} s" if kind in UNGUARDED else ""
    after = _after(found)
    again = "" if found["well_again_after_s"] is None else f"{found['well_again_after_s']:g} s"
    code = found["code"] or found["first_sign"]
    return (
        f"| {WORDS[kind]} | {after} | `{code}` | {found['lost_without_first_token']} | {found['broken_off']} "
        f"| {found['worst_ttft_s']:.0f} s | {bare} | {again} |"
    )


def _after(found: Row) -> str:
    if found["quarantined_after_s"] is not None:
        return f"{found['quarantined_after_s']:g} s"
    doubted_s = found["first_sign_after_s"]
    return "not noticed" if doubted_s is None else f"a suspect after {doubted_s:g} s"


def _list(value: Value) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("expected a table")
    return value


def claims() -> list[Claim]:
    """Return the rows of the table of verdicts."""
    sick = [kind for kind in KINDS if kind not in SERVING]
    times = {kind: row(kind)["quarantined_after_s"] for kind in sick}
    lost = sum(int(str(row(kind)["lost_without_first_token"])) for kind in KINDS)
    wrongly = sum(len(_list(each["wrongly"])) for each in healthy())
    slowest = max((float(str(each)) for each in times.values() if each is not None), default=float("inf"))
    return [
        Claim(
            source="ours",
            claim="engines that answer /health with 200 and do not work are found by their progress",
            setting=f"{len(sick)} kinds of fault on one of {ENGINES} engines",
            theirs="",
            ours=f"each after {slowest:.0f} s at most, {lost} requests without a first token lost",
            verdict=judged(
                reproduced=None not in times.values() and slowest <= FOUND_WITHIN_S and lost == 0,
                partly=None not in times.values(),
            ),
            why="a hang shows after the no-progress time, a crawl only after enough slow requests",
        ),
        Claim(
            source="ours",
            claim="healthy engines under bursts are left alone",
            setting=f"{len(healthy())} hours of bursts that overload the fleet",
            theirs="",
            ours=f"{wrongly} quarantines",
            verdict=judged(reproduced=wrongly == 0),
            why="slow means slower than its peers and than its cost model, for a while",
        ),
    ]
