"""Chapter: who is refused when there is too much."""

from __future__ import annotations

from collections.abc import Sequence

from bench.evidence.claims import Claim, judged, percent
from bench.evidence.measure import admission as measured
from bench.evidence.measure import overload
from bench.evidence.plots import admission as plots
from bench.evidence.store import Row, load

PAPER = {"early": 3771 / 4183, "predictive": 3589 / 4183}
"""Mooncake Table 4: rejections as a share of the baseline's."""
NAMES = {
    measured.NONE: "nobody is refused",
    measured.AFTER_PREFILL: "baseline: decode looked at after prefill",
    measured.EARLY: "early rejection",
    measured.UNIFORM: "prediction, uniform t_d (paper)",
    measured.UNIFORM_SHORT: f"the same with t_d = {measured.SHORT_S:g} s",
    measured.SYSTEM: "prediction, observed rate, pool",
    measured.INSTANCE: "prediction, observed rate, instance",
}
SETTING_NAMES = {"decode": "decode too slow", "both": "both too slow", "slow_prefill": "both, prefill twice as long"}


def text() -> str:
    """Return the chapter with its picture."""
    shown = {title: _cell(*measured.SHOWN, mode) for title, mode in _PANELS.items()}
    picture = plots.loads_over_time(shown, measured.STEP_S, "admission")
    load_name, slo_s = measured.SHOWN
    early, instance = (_cell(load_name, slo_s, mode) for mode in (measured.EARLY, measured.INSTANCE))
    return f"""## Overload: who is refused, and when

![Loads of prefill and decode over time]({picture})

*Eight prefill and eight decode devices, {measured.SETTINGS[load_name][0]:g} requests/s of tool & agent, TTFT within
{slo_s:g} s, a token every {1000 * measured.TBT_SLO_S:g} ms. Left Mooncake's Fig. 6, middle its Fig. 7b, right a prediction of ours.*

*This is the one of {len(_settings())} settings in which both swing most: the wait for prefill is longest there. One run
each, of under five minutes, so that a swing more or less is chance.*

Early rejection looks at the decode load of the moment; what prefill has under way arrives later. So both swing against
each other: here their correlation is {_number(early, "correlation"):.2f} and prefill's load has a standard deviation of
{_number(early, "prefill_load_sd"):.2f}; with prediction for the engine itself it is
{_number(instance, "correlation"):.2f} and {_number(instance, "prefill_load_sd"):.2f}. Over all settings the correlation is
{_span(measured.EARLY, "correlation")} with early rejection and {_span(measured.INSTANCE, "correlation")} with prediction;
prefill's own swing becomes smaller in {_calmer(measured.INSTANCE)} of {len(_settings())}, and decode's in {_calmer(measured.INSTANCE, "decode_load_sd")}.

{_table()}

*Of {_number(early, "requests"):,.0f} requests. In time: TTFT and mean time between tokens both within their objective;
"late" rejections happened after a prefill, which is wasted. All rules admit up to {percent(measured.MARGIN, 0)} of an
objective.*

The paper does not say what its t_d is. Here it is the mean time that a decode took under early rejection in the same setting,
{_span(measured.UNIFORM, "uniform_s", 0)} s. With it prediction refuses fewer requests than early rejection in {sum(_fewer_than_early(measured.UNIFORM))} of
{len(_settings())} settings, {_times(measured.UNIFORM, "rejected")} times the baseline's, and serves {_times(measured.UNIFORM, "served_on_time")} times as many in time. It hangs on t_d: with
{measured.SHORT_S:g} s, less than half of what decodes take, most are taken for over, up to {_span_last(measured.UNIFORM_SHORT, "decode_load")} of the decode objective is in use, and
{_times(measured.UNIFORM_SHORT, "served_on_time")} times as many are in time.

Beyond the paper: with no t_d given, decodes are expected to end at the rate at which they have ended. For the engine itself that
refuses {_times(measured.INSTANCE, "rejected")} times the baseline's, more than early rejection: it admits longer prompts (with decode too slow and a
TTFT within {measured.OBJECTIVES_S[0]:g} s, {_admitted(measured.INSTANCE)} on average against {_admitted(measured.EARLY)}), since by the time that they
decode, more will have ended. It serves {_times(measured.INSTANCE, "served_on_time")} times as many in time as the baseline, early rejection {_times(measured.EARLY, "served_on_time")} times. What
all of them save are the baseline's wasted prefills. The baseline checks each engine; early rejection and prediction for the pool
look at the mean, under which single engines are over the objective.

### Requests that cannot be on time any more

{_hopeless_table()}

*Conversation at {overload.PAST_SATURATION_QPS:g} requests/s, `least_cost`; on: such requests get 429 at once.*

Means of {len(overload.SEEDS)} seeds. Serving them last costs minutes for them. Refused at once, P99 of those that are
served is within the objective. The share on time grows by {_gains()} points (per seed, `shed` and `slack`); under FIFO,
where each late request makes the next one late, refusal does what `shed` does.
"""


_PANELS = {
    "Early rejection": measured.EARLY,
    "Prediction, uniform t_d": measured.UNIFORM,
    "Prediction, observed rate, instance": measured.INSTANCE,
}


def claims() -> list[Claim]:
    """Return the rows for the table of verdicts."""
    return [_table_4(), _fluctuation(), _bottleneck(), _refusal()]


def _cell(load_name: str, slo_s: float, mode: str) -> Row:
    return load("admission").find(load=load_name, ttft_slo_s=slo_s, mode=mode)


def _number(row: Row, name: str) -> float:
    value = row[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, not a number")
    return float(value)


def _table() -> str:
    lines = ["| too slow | TTFT within | rule | rejected | late | in time |", "|---|---|---|---|---|---|"]
    for load_name in measured.SETTINGS:
        for slo_s in measured.OBJECTIVES_S:
            for mode in measured.MODES:
                row = _cell(load_name, slo_s, mode)
                lines.append(
                    f"| {SETTING_NAMES[load_name]} | {slo_s:g} s | {NAMES[mode]} | {_number(row, 'rejected'):,.0f} "
                    f"| {_number(row, 'rejected_after_prefill'):,.0f} | {_number(row, 'served_on_time'):,.0f} |"
                )
    return "\n".join(lines)


def _hopeless_table() -> str:
    lines = ["| order | hopeless | on time | of tokens | P50 | P99 | refused |", "|---|---|---|---|---|---|---|"]
    for order in overload.ORDERS:
        for on in (False, True):
            row = load("overload").find(kind="hopeless", order=order, on=on)
            lines.append(
                f"| {order} | {'refused' if on else 'served'} | {percent(_number(row, 'slo_share'))} "
                f"| {percent(_number(row, 'slo_token_share'))} | {_number(row, 'ttft_p50_s'):.1f} s "
                f"| {_number(row, 'ttft_p99_s'):.1f} s | {_number(row, 'rejected'):,.0f} |"
            )
    return "\n".join(lines)


def _settings() -> list[tuple[str, float]]:
    return [(name, slo_s) for name in measured.SETTINGS for slo_s in measured.OBJECTIVES_S]


def _values(mode: str, figure: str) -> list[float]:
    return [_number(_cell(*each, mode), figure) for each in _settings()]


def _span(mode: str, figure: str, digits: int = 2) -> str:
    found = _values(mode, figure)
    return f"{min(found):.{digits}f} to {max(found):.{digits}f}"


def _span_last(mode: str, figure: str) -> str:
    return percent(max(_values(mode, figure)), 0)


def _calmer(mode: str, figure: str = "prefill_load_sd") -> int:
    """Return in how many settings a prediction makes a swing of early rejection smaller by a tenth or more."""
    pairs = zip(_values(measured.EARLY, figure), _values(mode, figure), strict=True)
    return sum(predicted < 0.9 * early for early, predicted in pairs)


def _seed_shares(kind: str, *, on: bool, **wanted: str) -> list[float]:
    """Return the share on time of each seed."""
    found = load("overload").find(kind=kind, on=on, **wanted)["slo_share_by_seed"]
    if not isinstance(found, list):
        raise TypeError("shares by seed are no list")
    return found


def _seed_gains(kind: str, **wanted: str) -> list[float]:
    """Return for each seed by how much the share on time grows when the setting is on."""
    off, on = (_seed_shares(kind, on=on, **wanted) for on in (False, True))
    return [after - before for before, after in zip(off, on, strict=True)]


def _gains() -> str:
    found = [100 * gain for order in ("shed", "slack") for gain in _seed_gains("hopeless", order=order)]
    return f"{min(found):+.1f} to {max(found):+.1f}"


def _admitted(mode: str) -> str:
    row = _cell("decode", measured.OBJECTIVES_S[0], mode)
    prompt, output = _number(row, "admitted_prompt_tokens"), _number(row, "admitted_output_tokens")
    return f"{prompt:,.0f} tokens and answers of {output:,.0f}"


def _over_baseline(mode: str, figure: str) -> list[float]:
    """Return a figure of a rule over the baseline's, of every setting."""
    pairs = zip(_values(mode, figure), _values(measured.AFTER_PREFILL, figure), strict=True)
    return [ours / baseline for ours, baseline in pairs]


def _times(mode: str, figure: str) -> str:
    """Return a figure of a rule over the baseline's, in all settings."""
    found = _over_baseline(mode, figure)
    return f"{min(found):.2f} to {max(found):.2f}"


def _fewer_than_early(mode: str) -> list[bool]:
    """Return in which settings a rule refuses fewer requests than early rejection."""
    return [
        ours < early for ours, early in zip(_values(mode, "rejected"), _values(measured.EARLY, "rejected"), strict=True)
    ]


def _where(chosen: Sequence[bool]) -> str:
    """Return the settings that are chosen, in words."""
    places = zip(_settings(), chosen, strict=True)
    return ", ".join(f"with {SETTING_NAMES[name]} and {slo_s:g} s" for (name, slo_s), true in places if true)


def _table_4() -> Claim:
    early, paper = _over_baseline(measured.EARLY, "rejected"), _over_baseline(measured.UNIFORM, "rejected")
    fewer, further = [each < 1.0 for each in early], _fewer_than_early(measured.UNIFORM)
    return Claim(
        source="Mooncake Table 4",
        claim="early rejection refuses fewer requests than refusal after prefill, prediction with a uniform t_d fewer still",
        setting=f"8 + 8 devices, tool & agent, {len(early)} settings; t_d the mean that was observed",
        theirs=f"{PAPER['early']:.2f} and {PAPER['predictive']:.2f} times as many",
        ours=f"{min(early):.2f} to {max(early):.2f} times, fewer in {sum(fewer)}; {min(paper):.2f} to {max(paper):.2f} times, "
        f"fewer still in {sum(further)}",
        verdict=judged(reproduced=all(fewer) and all(further), partly=any(fewer) and any(further)),
        why="early rejection wastes no prefill, and prediction sees the decodes that will have ended; not "
        f"{_where([not (each and more) for each, more in zip(fewer, further, strict=True)])}, where both swing most",
    )


def _fluctuation() -> Claim:
    early, paper = (_values(mode, "correlation") for mode in (measured.EARLY, measured.UNIFORM))
    against = sum(each < -0.4 for each in early)
    closer = sum(abs(now) < abs(before) for before, now in zip(early, paper, strict=True))
    calmer, count = _calmer(measured.UNIFORM), len(_settings())
    return Claim(
        source="Mooncake Figs 6–7",
        claim="early rejection makes prefill and decode swing against each other; prediction calms them",
        setting=f"8 + 8 devices, tool & agent, {count} settings; t_d the mean that was observed",
        theirs="shown, not given in numbers",
        ours=f"correlation below −0.4 in {against} of {count}; nearer to 0 with prediction in {closer}; prefill "
        f"calmer by a tenth in {calmer}",
        verdict=judged(reproduced=min(against, closer, calmer) == count, partly=against > 0 and closer > count / 2),
        why="the lag is the wait for prefill: where that is short against a decode, there is little to swing",
    )


def _bottleneck() -> Claim:
    shares = {
        (rule, on): load("overload").number("slo_share", kind="bottleneck", rule=rule, on=on)
        for rule in overload.RULES
        for on in (False, True)
    }
    gains = [gain for rule in overload.RULES for gain in _seed_gains("bottleneck", rule=rule)]
    alone = _seed_shares("bottleneck", on=False, rule="dual_map")
    words = ", ".join(
        f"{rule} {percent(shares[rule, False])} to {percent(shares[rule, True])}" for rule in ("dual_map", "least_cost")
    )
    return Claim(
        source="DualMap A.8",
        claim="adding the time without a first token to a full engine's TTFT, and moving its tickets, keeps requests on time",
        setting=f"co-located, conversation, {overload.CONTENTION_QPS:g} requests/s, T = {overload.AFTER_S:g} s",
        theirs="not given in numbers",
        ours=f"on time: {words} (mean of {len(overload.SEEDS)} seeds, {100 * min(gains):+.1f} to "
        f"{100 * max(gains):+.1f} points by seed)",
        verdict=judged(reproduced=shares["dual_map", True] > shares["dual_map", False] + 0.02),
        why="this load is a cliff on which single seeds of `dual_map` lie between "
        f"{percent(min(alone), 0)} and {percent(max(alone), 0)} without it; other loads are to be measured",
    )


def _refusal() -> Claim:
    result = load("overload")
    served, refused = (result.find(kind="hopeless", order="slack", on=on) for on in (False, True))
    return Claim(
        source="ours (Mooncake §4.1)",
        claim="answering hopeless requests 429 at once costs nobody else, and helps a little",
        setting=f"conversation, {overload.PAST_SATURATION_QPS:g} requests/s, `least_cost` + `slack`",
        theirs="",
        ours=f"on time {percent(_number(served, 'slo_share'))} to {percent(_number(refused, 'slo_share'))}, "
        f"P99 {_number(served, 'ttft_p99_s'):.0f} to {_number(refused, 'ttft_p99_s'):.1f} s",
        verdict=judged(reproduced=min(_seed_gains("hopeless", order="slack")) > 0.0),
        why="what nobody can use any more takes no engine time",
    )
