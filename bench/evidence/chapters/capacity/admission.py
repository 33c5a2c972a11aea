"""Figures: which requests are rejected under overload."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.capacity import admission as measured
from bench.evidence.measure.capacity import overload
from bench.evidence.plots import admission as plots
from bench.evidence.store import Row, load

PAPER = {"early": 3771 / 4183, "predictive": 3589 / 4183}
"""Mooncake Table 4: rejections as a share of the baseline's."""
NAMES = {
    measured.NONE: "no rejection",
    measured.AFTER_PREFILL: "baseline: decode checked after prefill",
    measured.EARLY: "early rejection",
    measured.UNIFORM: "prediction, uniform t_d (paper)",
    measured.UNIFORM_SHORT: f"the same with t_d = {measured.SHORT_S:g} s",
    measured.SYSTEM: "prediction, observed rate, pool",
    measured.INSTANCE: "prediction, observed rate, engine",
}
SETTINGS = [(name, slo_s) for name in measured.SETTINGS for slo_s in measured.OBJECTIVES_S]
SETTING_NAMES = {"decode": "decode too slow", "both": "both too slow", "slow_prefill": "both, prefill twice as long"}
_PANELS = {
    "Early rejection": measured.EARLY,
    "Prediction, uniform t_d": measured.UNIFORM,
    "Prediction, observed rate, engine": measured.INSTANCE,
}


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    load_name, slo_s = measured.SHOWN
    shown = {mode: cell(*measured.SHOWN, mode) for mode in (measured.EARLY, measured.INSTANCE)}
    return {mode: _over_settings(mode) for mode in measured.MODES if mode != measured.NONE} | {
        "count": len(SETTINGS),
        "shown": shown | {"qps": measured.SETTINGS[load_name][0], "slo_s": slo_s},
        "tpot_ms": 1000 * measured.TPOT_SLO_S,
        "margin": measured.MARGIN,
        "short_s": measured.SHORT_S,
        "rows": [
            cell(*item, mode) | {"setting": SETTING_NAMES[item[0]], "rule": NAMES[mode]}
            for item in SETTINGS
            for mode in measured.MODES
        ],
        "admitted": {
            "slo_s": measured.OBJECTIVES_S[0],
            "instance": _admitted(measured.INSTANCE),
            "early": _admitted(measured.EARLY),
        },
        "infeasible": [
            load("overload").find(kind="infeasible", order=order, on=on)
            for order in overload.ORDERS
            for on in (False, True)
        ],
        "overload_qps": overload.PAST_SATURATION_QPS,
        "overload_seeds": len(overload.SEEDS),
        "gains": [100 * gain for order in ("late_last", "slack") for gain in seed_gains("infeasible", order=order)],
    }


def draw() -> None:
    """Draw both loads over time under three rules."""
    shown = {title: cell(*measured.SHOWN, mode) for title, mode in _PANELS.items()}
    plots.loads_over_time(shown, measured.STEP_S, "admission")


def _over_settings(mode: str) -> dict[str, Any]:
    return {
        "correlation": values(mode, "correlation"),
        "uniform_s": values(mode, "uniform_s"),
        "times_rejected": over_baseline(mode, "rejected"),
        "times_served": over_baseline(mode, "served_on_time"),
        "highest_decode_load": max(values(mode, "decode_load")),
        "calmer_prefill": calmer(mode, "prefill_load_sd"),
        "calmer_decode": calmer(mode, "decode_load_sd"),
        "fewer_than_early": sum(fewer_than_early(mode)),
    }


def _admitted(mode: str) -> dict[str, float]:
    row = cell("decode", measured.OBJECTIVES_S[0], mode)
    return {"prompt": row["admitted_prompt_tokens"], "output": row["admitted_output_tokens"]}


def cell(load_name: str, slo_s: float, mode: str) -> Row:
    """Return the run of a rule in a setting."""
    return load("admission").find(load=load_name, ttft_slo_s=slo_s, mode=mode)


def values(mode: str, figure: str) -> list[float]:
    """Return a figure of a rule in every setting."""
    return [cell(*item, mode)[figure] for item in SETTINGS]


def over_baseline(mode: str, figure: str) -> list[float]:
    """Return a figure of a rule over the baseline's in every setting."""
    pairs = zip(values(mode, figure), values(measured.AFTER_PREFILL, figure), strict=True)
    return [ours / baseline for ours, baseline in pairs]


def calmer(mode: str, figure: str) -> int:
    """Return in how many settings a prediction reduces early rejection's swings by at least a tenth."""
    pairs = zip(values(measured.EARLY, figure), values(mode, figure), strict=True)
    return sum(predicted < 0.9 * early for early, predicted in pairs)


def fewer_than_early(mode: str) -> list[bool]:
    """Return for each setting whether a rule rejects fewer requests than early rejection."""
    pairs = zip(values(mode, "rejected"), values(measured.EARLY, "rejected"), strict=True)
    return [ours < early for ours, early in pairs]


def seed_shares(kind: str, *, on: bool, **wanted: object) -> list[float]:
    """Return the share on time of each seed."""
    return list(load("overload").find(kind=kind, on=on, **wanted)["slo_share_by_seed"])


def seed_gains(kind: str, **wanted: object) -> list[float]:
    """Return the gains on the same seed."""
    pairs = zip(seed_shares(kind, on=False, **wanted), seed_shares(kind, on=True, **wanted), strict=True)
    return [after - before for before, after in pairs]
