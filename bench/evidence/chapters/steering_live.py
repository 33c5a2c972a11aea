"""Chapter: steering with real processes: sick engines, growing and shrinking, and random kills."""

from __future__ import annotations

from typing import Any

from bench.evidence.claims import Claim, judged, percent
from bench.evidence.store import MissingResultError, Row, Value, load
from bench.sick_engines import BACK_LIMIT_S, FULL_LIMIT_S, SERVING_S

WORDS = {
    "hang": "hangs: takes requests, brings nothing",
    "stop": "is stopped (SIGSTOP)",
    "crawl": "crawls: everything takes twenty times as long",
    "lie": "hangs while its counters grow",
    "idle": "hangs and says that it is idle",
    "sleep": "sleeps, as vLLM does, and answers 200",
    "flap": "dies and returns every few seconds",
    "flap_again": "the same engine flaps once more",
    "frozen": "serves, its metrics stand",
    "garbage": "serves, its metrics are nonsense",
}
SERVING = ("frozen", "garbage")
FOUND_WITHIN_S = 15.0
ATTAINMENT = 0.9


def text() -> str:
    """Return the chapter."""
    return "## Steering real processes\n\n" + "\n".join(_part(part) for part in (_sick, _scaling, _soak))


def _part(part: object) -> str:
    if not callable(part):
        raise TypeError("a part of the chapter is a function")
    try:
        return str(part())
    except MissingResultError as error:
        return f"Not measured yet: {error}\n"


def _sick() -> str:
    result = load("sick_engines")
    kinds = [row for row in result.rows if row["kind"] in WORDS]
    well, everything, set_to = _healthy(), result.find(kind="all"), result.settings
    return f"""**Sick engines.** The whole program with {set_to["engines"]} simulated engines as processes; clients send {set_to["qps"]:g} requests/s and
{set_to["burst_qps"]:g} in bursts of {set_to["burst_s"]:g} s every {set_to["period_s"]:g} s. One engine after the other gets a fault; /health answers 200 except while an
engine is stopped or dead (`{result.command}`; load average of the {set_to["cores"]} cores {set_to["load_average_before"]} before, {set_to["load_average_after"]} after):

| the engine … | out after | as | back after healing | nothing held against it after | lost without a first byte | broken off | longest wait for a first byte |
|---|---:|---|---:|---:|---:|---:|---:|
{chr(10).join(_sick_line(row) for row in kinds)}

In {well["seconds"]:g} s of the same traffic without a fault {len(_list(well["wrongly"]))} engines were taken out. Of all {everything["requests"]} requests
{everything["lost_without_first_byte"]} were lost without a first byte; {everything["broken_off"]} answers that had begun broke off.
What stands still is found by the gateway from its own streams and comes back when it answers a request of one token, so a hang that heals is over at once; a
crawling engine passes that trial, is taken out again for longer each time, and is held by the job's verdict. Each loss of a flapping engine counts towards the
length of its quarantine.
"""


def _sick_line(row: Row) -> str:
    out = "stays in" if row["kind"] in SERVING else _seconds(row["out_after_s"])
    held = row["held_as_flapping_after_s"]
    seen = f"`{row['as']}`" if row["as"] != "unseen" else f"not noticed within {SERVING_S:g} s"
    word = seen + (f", `flapping` after {_seconds(held)}" if held is not None else "")
    back = "" if row["kind"] in SERVING else _seconds(row["back_after_s"], f"over {BACK_LIMIT_S:g} s")
    full = "" if row["kind"] in SERVING else _seconds(row["full_after_s"], _not_yet(row))
    return (
        f"| {WORDS[str(row['kind'])]} | {out} | {word} | {back} | {full} | {row['lost_without_first_byte']} "
        f"| {row['broken_off']} | {_seconds(row['ttft_worst_s'])} |"
    )


def _not_yet(row: Row) -> str:
    return "" if row["back_after_s"] is None else f"over {FULL_LIMIT_S:g} s"


def _scaling() -> str:
    result = load("scaling_live")
    (row,) = result.rows
    phases = ", then ".join(
        f"{qps:g} requests/s for {seconds:g} s" for qps, seconds in _list(result.settings["phases"])
    )
    few, most = _figure(row, "fewest_engines"), _figure(row, "most_engines")
    plans = "\n".join(f"| {plan['at_s']:.0f} s | {'; '.join(plan['reasons'])} |" for plan in _list(row["plans"]))
    return f"""**Growing and shrinking (DualMap Fig. 12).** {phases}, prompts of about 8,000 tokens, objective {result.settings["slo_ttft_s"]:g} s; the scaling
job acts through the process actuator, which starts and stops engines (`{result.command}`; load average {result.settings["load_average_before"]}). The worst
{_STEP_S:g} s of the overload had {percent(_figure(row, "worst_window"), 0)} on time; {most:.0f} engines were ordered {_seconds(row["at_most_after_s"])} after it began, and from
{_seconds(row["recovered_after_s"])} on {percent(_figure(row, "on_time_after_recovery"))} were on time. From {most:.0f} engines down to {few:.0f} took {_seconds(row["few_again_after_s"])},
with {percent(_figure(row, "on_time_while_shrinking"))} on time meanwhile; {row["lost"]} of {row["requests"]} requests were lost.

| at | what the scaling job changed, and why |
|---:|---|
{plans}
"""


def _soak() -> str:
    result = load("soak")
    lines = "\n".join(_soak_line(row) for row in result.rows)
    wrong = sum(int(_figure(row, "wrong")) for row in result.rows)
    return f"""**Random kills.** Web, two workers, their beat alone, two gateways, four engines, PostgreSQL and Redis; one process after the other is
killed with SIGKILL and started again, while clients send requests and a pool behind a webhook is told to have more and fewer engines
(`{result.command}`, logs in `bench/results/soak/`). Checked afterwards: no request lost before its first byte, broken answers only where their gateway or
engine was killed, each order once in effect at the webhook, nothing registered, deleted or rolled up twice, no process left over.

| seed | minutes | requests | asked again | broken off | lost | killed: workers | beat | gateways | engines | web | orders | effects | calls | left over | largest process |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
{lines}

{wrong} things were wrong. *Asked again*: the client's gateway was gone, or said 503 and to try again, before the first byte.
Seed 5 was run twice: at first beside other work, at a load of 35 on two cores, where a gateway took 80 s to start, one client
gave up after its minute of asking again, and the webhook's pool had not settled 90 s after the end. Seed 6 is older: there
each worker's beat died with it.
"""


def _soak_line(row: Row) -> str:
    names = ("seed", "minutes", "requests", "asked_again", "broken_off", "lost", "killed_worker", "killed_beat")
    names += ("killed_gateway", "killed_engine", "killed_web", "orders", "effects", "calls", "orphans")
    return "| " + " | ".join(f"{_figure(row, name):g}" for name in names) + f" | {_figure(row, 'peak_mib'):.0f} MiB |"


_STEP_S = 5.0


def _healthy() -> Row:
    return load("sick_engines").find(kind="none")


def _figure(row: Row, name: str) -> float:
    return float(str(row[name]))


def _seconds(value: Value, otherwise: str = "never") -> str:
    return otherwise if value is None else f"{float(str(value)):.1f} s"


def _list(value: Value) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("expected a table")
    return value


def claims() -> list[Claim]:
    """Return the rows of the table of verdicts."""
    sick = [row for row in load("sick_engines").rows if row["kind"] in WORDS and row["kind"] not in SERVING]
    slowest = max(float(str(row["out_after_s"])) if row["out_after_s"] is not None else float("inf") for row in sick)
    lost = int(_figure(load("sick_engines").find(kind="all"), "lost_without_first_byte"))
    wrongly = len(_list(_healthy()["wrongly"]))
    (scaled,) = load("scaling_live").rows
    after, while_ = _figure(scaled, "on_time_after_recovery"), _figure(scaled, "on_time_while_shrinking")
    most = int(_figure(scaled, "most_engines"))
    few = int(_figure(scaled, "fewest_engines"))
    return [
        Claim(
            source="ours",
            claim="the same with real processes: sick engines are out within seconds, healthy ones stay",
            setting=f"{len(sick)} kinds of fault, live traffic",
            theirs="",
            ours=f"each after {slowest:.1f} s at most, {lost} requests without a first byte lost, {wrongly} wrongly out",
            verdict=judged(reproduced=slowest <= FOUND_WITHIN_S and not lost and not wrongly, partly=not lost),
            why="the gateway sees its own streams; the job sees the engine's counters and its peers",
        ),
        Claim(
            source="DualMap Fig. 12, live",
            claim="scaling up at once brings attainment back over 90 %, scaling down gradually keeps it there",
            setting=f"{few} → {most} → {few} real engine processes, minutes as seconds",
            theirs="over 90 %",
            ours=f"{percent(after)} after recovery, {percent(while_)} while shrinking",
            verdict=judged(
                reproduced=min(after, while_) >= ATTAINMENT and most > few, partly=max(after, while_) >= ATTAINMENT
            ),
            why="the job sizes by the work that comes and waits, and drains one engine at a time",
        ),
    ]
