"""Chapter: how many engines prefill and how many decode (Mooncake §5.1, §7.5)."""

from __future__ import annotations

from bench.evidence.claims import BY_CONSTRUCTION, Claim, judged, percent
from bench.evidence.measure.pd_ratio import DAY_S, ENGINES, FIXED, SLO_TBT_S, SLO_TTFT_S, SWEEP_ENGINES, SWEPT
from bench.evidence.plots import steering as plots
from bench.evidence.store import Row, load

EVEN = ENGINES // 2
_TURNS = 3
"""Turns of direction that follow the day and no more."""


def fixed(prefill: int) -> Row:
    """Return the day with so many prefill engines all the time."""
    return load("pd_ratio").find(kind="day", controlled=False, prefill=prefill, seed=1)


def controlled() -> list[Row]:
    """Return the days under the controller, one per seed."""
    return load("pd_ratio").where(kind="day", controlled=True)


def swept(prefill: int) -> Row:
    """Return the run at a constant mix with so many prefill engines."""
    return load("pd_ratio").find(kind="sweep", prefill=prefill)


def text() -> str:
    """Return the chapter with its pictures."""
    result = load("pd_ratio")
    day = plots.day(result, EVEN, "pd-day")
    sweep = plots.sweep(result, "pd-sweep")
    return f"""## Prefill and decode engines

![Roles and loads over a day, and requests within both objectives]({day})

*{ENGINES} engines and a day in {DAY_S / 60:g} minutes: chats with short prompts and long answers by night, documents of 24,000 tokens at noon. Left: the
controller of Mooncake §5.1 (their Fig. 8), one engine at a time, 20 s out of service for each change. Right: beside a fixed ratio. TTFT
within {SLO_TTFT_S:g} s and TBT within {1000 * SLO_TBT_S:g} ms.*

| ratio | within both | TTFT on time | TBT on time | TTFT P90 | TBT P90 | changes of role | turns |
|---|---:|---:|---:|---:|---:|---:|---:|
{_table()}

A day turns twice, and the controller first leaves the ratio it began with. Its load of a prefill engine is the share of its time that
it prefills plus its wait over the objective; the wait alone would be next to nothing until an engine is nearly always busy.

![Capacity, TTFT and TBT over the ratio]({sweep})

*{SWEEP_ENGINES} engines at a constant mix of both (Mooncake Fig. 23).*
"""


def _table() -> str:
    rows = [(f"{each} : {ENGINES - each}", fixed(each)) for each in FIXED]
    rows += [(f"controller, seed {each['seed']}", each) for each in controlled()]
    return "\n".join(
        f"| {name} | {percent(each['capacity'])} | {percent(each['ttft_on_time'])} | {percent(each['tbt_on_time'])} "
        f"| {each['ttft_p90_s']:.1f} s | {1000 * each['tbt_p90_s']:.0f} ms | {each['flips']} | {each['turns']} |"
        for name, each in rows
    )


def claims() -> list[Claim]:
    """Return the rows of the table of verdicts."""
    best = max(FIXED, key=lambda each: float(str(fixed(each)["capacity"])))
    shares = [float(str(each["capacity"])) for each in controlled()]
    turns = max(int(str(each["turns"])) for each in controlled())
    ours = load("pd_ratio")
    capacities = {each: ours.number("capacity", kind="sweep", prefill=each) for each in SWEPT}
    peaks = [each for each in SWEPT if capacities[each] == max(capacities.values())]
    least, most = swept(SWEPT[0]), swept(SWEPT[-1])
    ttfts = float(str(least["ttft_mean_s"])) > float(str(most["ttft_mean_s"]))
    tbts = float(str(least["tbt_mean_s"])) < float(str(most["tbt_mean_s"]))
    return [
        Claim(
            source="Mooncake §5.1, Fig. 8",
            claim="a controller on the imbalance factor follows the day, where a fixed ratio is pronouncedly out of balance",
            setting=f"{ENGINES} engines, documents by day and chats by night",
            theirs="follows the load; no figures",
            ours=f"{percent(min(shares))} to {percent(max(shares))} within both objectives, "
            f"{percent(float(str(fixed(best)['capacity'])))} with the best of {len(FIXED)} fixed ratios, {best} : {ENGINES - best}",
            verdict=judged(
                reproduced=min(shares) > 0.9, partly=min(shares) > float(str(fixed(best)["capacity"])) + 0.1
            ),
            why="no ratio suits both noon and midnight, and what falls behind then takes hours to catch up",
        ),
        Claim(
            source="Mooncake §5.1",
            claim="bounded steps do not oscillate",
            setting="the same, a day that turns twice",
            theirs="gradual",
            ours=f"at most {turns} turns of direction",
            verdict=judged(reproduced=turns <= _TURNS, partly=turns <= 2 * _TURNS),
            why=f"the day needs {_TURNS}: it turns twice, and the controller first leaves the ratio it began with",
        ),
        Claim(
            source="Mooncake §7.5, Fig. 23b",
            claim="more prefill engines lower TTFT and raise TBT",
            setting=f"{SWEEP_ENGINES} engines, constant mix",
            theirs="so",
            ours=f"TTFT {least['ttft_mean_s']:.1f} to {most['ttft_mean_s']:.2f} s, "
            f"TBT {1000 * float(str(least['tbt_mean_s'])):.0f} to {1000 * float(str(most['tbt_mean_s'])):.0f} ms",
            verdict=judged(reproduced=ttfts and tbts, partly=ttfts or tbts),
            why="",
        ),
        Claim(
            source="Mooncake §7.5, Fig. 23a",
            claim="capacity peaks where the loads are balanced, near 1 : 1",
            setting=f"{SWEEP_ENGINES} engines, constant mix",
            theirs="about 1 : 1 in their mix",
            ours=f"peak of {percent(max(capacities.values()))} at "
            + " and ".join(f"{each} : {SWEEP_ENGINES - each}" for each in peaks)
            + "; "
            f"{percent(float(str(least['capacity'])))} and {percent(float(str(most['capacity'])))} at the ends",
            verdict=BY_CONSTRUCTION,
            why="the mix was chosen so that equal numbers are balanced",
        ),
    ]
