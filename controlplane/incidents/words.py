"""Incidents in words: what is wrong, why, and what to do. Cures are those of docs/troubleshooting.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.platform.format import clock_time, duration, percent, rate, sentence, zone_name
from planning.incidents import causes, symptoms
from planning.incidents.causes import IncidentCause
from planning.incidents.episodes import Episode
from planning.incidents.signs import ALL, FAILED, LATE, NONE, REJECTED, Outcomes, missed, requests
from planning.incidents.symptoms import Symptom
from routing.values.counted import count


@dataclass(frozen=True, slots=True)
class CauseWords:
    """A cause: its finding and its evidence as sentences, and its cure."""

    finding: Callable[[IncidentCause], str]
    evidence: Callable[[IncidentCause], str]
    cure: str
    act: str = ""
    """The button that helps: limit, quarantine, roll-back, capacity, or restart; empty: none."""


def _figure(name: str, words: Callable[[float], str]) -> Callable[[IncidentCause], str]:
    return lambda cause: words(cause.figures[name]) if cause.figures.get(name) else "—"


def _per_s(cause: IncidentCause, name: str) -> str:
    return f"{rate(cause.figures.get(name, 0.0))} requests/s"


def _growth(cause: IncidentCause) -> str:
    growth = cause.figures.get("growth", 0.0)
    return f"requests arrived at {growth:.1f} × the usual rate" if growth else "the usual rate of requests is unknown"


def _reported(cause: IncidentCause) -> str:
    return sentence(cause.text) if cause.text else "No reason is reported."


def _hits(cause: IncidentCause) -> str:
    usual, now = cause.figures.get("usual_hit"), cause.figures.get("hit")
    if usual is not None and now is not None and now >= usual - 0.05:
        return f"hits are at {percent(now)}, as usual"
    return f"hits fell from {percent(usual)} to {percent(now)}"


def _removed(cause: IncidentCause) -> str:
    now, usual = cause.figures.get("removed_per_s"), cause.figures.get("usual_removed_per_s")
    if now is None or usual is None:
        return "engines do not report evictions"
    return f"engines evict {rate(now)} blocks/s, usually {rate(usual)}"


def _before(cause: IncidentCause) -> str:
    return f"{duration(cause.figures.get('before_s', 0.0))} before the onset"


CAUSES: dict[str, CauseWords] = {
    causes.GATEWAY: CauseWords(
        lambda _: "The host starves the gateway",
        lambda cause: (
            f"Its event loop was blocked for {_figure('away_share', percent)(cause)} of the time; {_growth(cause)}."
        ),
        "Give the gateway a core; run gateways on separate machines.",
    ),
    causes.FLOOD: CauseWords(
        lambda cause: f"Tenant {cause.name} sends a flood of requests",
        lambda cause: (
            f"It sends {_per_s(cause, 'tenant_per_s')} instead of {_per_s(cause, 'tenant_usual_per_s')}; "
            f"{percent(cause.figures.get('tenant_share'))} of all, "
            f"usually {percent(cause.figures.get('tenant_usual_share'))}."
        ),
        "Limit the key that sends them, or add engines.",
        "limit",
    ),
    causes.DEMAND: CauseWords(
        lambda _: "More requests arrive than usual",
        lambda cause: (
            f"There are {_per_s(cause, 'per_s')} instead of {_per_s(cause, 'usual_per_s')}; no single tenant causes it."
        ),
        "Add engines; see the Automation page.",
        "capacity",
    ),
    causes.CRASHED: CauseWords(
        lambda cause: f"{cause.name} crashed",
        lambda cause: sentence(cause.text) if cause.text else "A new process of the engine reports.",
        "Read the engine's log, and restart the engine if its process manager does not.",
        "quarantine",
    ),
    causes.FROZEN: CauseWords(
        lambda cause: f"{cause.name} is frozen",
        lambda cause: f"It makes no progress. {_reported(cause)}",
        "Read the engine's log. If its core is frozen, restart it: its requests move at once.",
        "quarantine",
    ),
    causes.LOST: CauseWords(
        lambda cause: f"{cause.name} does not answer",
        _reported,
        "Check that the gateway can reach its address; read the engine's log.",
        "quarantine",
    ),
    causes.SLOW: CauseWords(
        lambda cause: f"{cause.name} is slow",
        lambda cause: (
            f"It takes {cause.figures['ratio']:.1f} × as long as the other engines for the same work."
            if "ratio" in cause.figures
            else _reported(cause)
        ),
        "Check the engine; quarantine it until it is as fast as the others.",
        "quarantine",
    ),
    causes.FAILS: CauseWords(
        lambda cause: f"{cause.name} is sick",
        lambda cause: f"Failed requests in a row: {_figure('failures', '{:.0f}'.format)(cause)}. {_reported(cause)}",
        "Check the engine; read its log.",
        "quarantine",
    ),
    causes.TOKENIZER: CauseWords(
        lambda cause: f"The tokenizer of {cause.name} is late",
        lambda cause: (
            f"It was late {count(round(cause.figures.get('late', 0)), 'time')}, "
            f"{percent(cause.figures.get('share'))} of all late tokenizer calls."
        ),
        "Give the engine's API server more CPU.",
        "quarantine",
    ),
    causes.BLIND: CauseWords(
        lambda cause: f"The index of {cause.name} is blind",
        _reported,
        "Run the preflight again; manage.py connect URL prints the missing flag.",
    ),
    causes.HOT_PREFIX: CauseWords(
        lambda cause: f"Prefix {cause.subject[:8]} is hot",
        lambda cause: (
            f"It makes {percent(cause.figures.get('share'))} of the work of the busiest prefixes, usually "
            f"{percent(cause.figures.get('usual'))}; few engines hold it."
        ),
        "Let rebalancing give the prefix more engines: see the Automation page.",
        "capacity",
    ),
    causes.EVICTIONS: CauseWords(
        lambda _: "Engines evict the prefixes that requests need",
        lambda cause: sentence(f"{_removed(cause)}; {_hits(cause)}"),
        "Add engines or KV memory: the engines have too little for this traffic.",
        "capacity",
    ),
    causes.TEMPLATE: CauseWords(
        lambda _: "Prompts begin differently than before",
        lambda cause: sentence(f"{_hits(cause)} at once; {_removed(cause)}"),
        "Ask who changed a prompt template; put what varies at the prompt's end.",
    ),
    causes.POLICY: CauseWords(
        lambda cause: f"Policy v{cause.subject} went live",
        lambda cause: f"It went live {_before(cause)}.",
        "Roll back to the version before.",
        "roll-back",
    ),
    causes.SCALED_DOWN: CauseWords(
        lambda cause: f"{count(round(cause.figures.get('left', 1)), 'engine')} left the pool",
        lambda cause: (
            f"{_reported(cause)} That was {_before(cause)}; {cause.figures.get('serving', 0):.0f} serve the same "
            "requests."
        ),
        "Return engines to service, or add engines.",
        "capacity",
    ),
    causes.NODE: CauseWords(
        lambda cause: f"KV node {cause.name} is silent",
        lambda _: "It missed three reports.",
        "Check the node's process, its log, and the network to it.",
    ),
    causes.LINK: CauseWords(
        lambda cause: f"The link {cause.name} is down",
        lambda _: "The gateway there does not answer this region.",
        "Check the network between the regions, and the gateway there.",
    ),
    causes.REGION: CauseWords(
        lambda cause: f"Region {cause.name} is cut off",
        lambda _: "None of its links to other regions works; it serves alone what arrives there.",
        "Check the network of the region, and its gateways. Requests of the other regions stay there until it returns.",
        "capacity",
    ),
    causes.JOB: CauseWords(
        lambda cause: f"The job {cause.name} fails",
        lambda _: "Its last rounds failed.",
        "Read the worker's log; see the Jobs page.",
    ),
    causes.CANARY: CauseWords(
        lambda _: "A canary was aborted", _reported, "Read its guardrails on its page (Policies → Canaries)."
    ),
}

AFTER_RETURN = "Read its log for the cause; quarantine it if this repeats."
"""What helps once the engine that is the cause gets work again."""
_MISSED = {LATE: ("is late", "are late"), FAILED: ("fails", "fail"), REJECTED: ("is rejected", "are rejected")}
_HAD_MISSED = {LATE: ("was late", "were late"), FAILED: ("failed",) * 2, REJECTED: ("was rejected", "were rejected")}
_TROUBLES = {
    symptoms.HITS_FELL: "Cache hits of {} fell",
    symptoms.EVICTING: "Engines of {} evict far more blocks than usual",
    symptoms.ENGINE_LOST: "{} was lost",
    symptoms.ENGINE_SICK: "{} is sick",
    symptoms.INDEX_BLIND: "The index of {} is blind",
    symptoms.GATEWAY_LATE: "The gateway is late",
    symptoms.NODE_LOST: "KV node {} is silent",
    symptoms.LINK_DOWN: "The link {} is down",
    symptoms.REGION_CUT: "Region {} is cut off",
    symptoms.JOB_FAILING: "The job {} fails",
    symptoms.CANARY_ABORTED: "A canary was aborted",
}


def all_hit(episode: Episode) -> Outcomes:
    """Return the outcomes of all requests that ended in the incident."""
    return episode.hit.get(ALL, {}).get("", NONE)


def wrong(episode: Episode, pool_name: str = "") -> str:
    """Return what is wrong, such as "1 in 7 requests to Chat is late"."""
    hit = all_hit(episode)
    if any(item.kind in symptoms.OF_REQUESTS for item in episode.symptoms) and missed(hit):
        column = max(_MISSED, key=lambda item: hit[item])
        one, several = (_MISSED if episode.present else _HAD_MISSED)[column]
        ratio = requests(hit) / hit[column]
        to = f" to {pool_name}" if pool_name else ""
        if ratio >= 1.8:
            return f"1 in {ratio:.0f} requests{to} {one}"
        return f"{percent(1 / ratio)} of requests{to} {several}"
    return _trouble(episode.symptoms)


def _trouble(matches: Sequence[Symptom]) -> str:
    named = next((item for item in matches if item.kind in _TROUBLES), None)
    return _TROUBLES[named.kind].format(named.name) if named is not None else "Requests miss their objective"


def title(episode: Episode, pool_name: str = "") -> str:
    """Return what is wrong and, if it is certain, why: the incident's title."""
    first = wrong(episode, pool_name)
    if not episode.certain:
        return first
    finding = CAUSES[episode.causes[0].kind].finding(episode.causes[0])
    return first if finding == first else f"{first}: {finding}"


def why(episode: Episode) -> str:
    """Return the cause with its evidence in one sentence; "Unsure" with the candidates where evidence is lacking."""
    if not episode.causes:
        return "Unsure: no cause has enough evidence."
    first = episode.causes[0]
    if episode.certain:
        return f"{CAUSES[first.kind].finding(first)}. {evidence(episode)}"
    return f"Unsure: {'; or '.join(CAUSES[item.kind].finding(item) for item in episode.causes[:3])}."


def evidence(episode: Episode) -> str:
    """Return the evidence of the likeliest cause as a sentence; empty without a cause."""
    return CAUSES[episode.causes[0].kind].evidence(episode.causes[0]) if episode.causes else ""


def cause_title(kind: str) -> str:
    """Return the kind of a cause in words, such as Engine crashed; Unsure without one."""
    return kind.replace("_", " ").capitalize() or "Unsure"


def is_critical(episode: Episode) -> bool:
    """Return whether requests missed their objective: everything else is a warning."""
    return any(item.kind in symptoms.OF_REQUESTS for item in episode.symptoms)


def cure(episode: Episode, back: Mapping[str, datetime]) -> str:
    """Return what to do. `back`: since when engines get work again, by engine id."""
    if not episode.causes:
        return "Open the late and failed requests: what they have in common names the cause."
    return cure_of(episode.causes[0], back)


def cure_of(cause: IncidentCause, back: Mapping[str, datetime]) -> str:
    """Return what helps against one cause; of an engine that is back, what still helps."""
    if cause.subject in back:
        return f"{cause.name} is back since {clock_time(back[cause.subject])} {zone_name()}. {AFTER_RETURN}"
    return CAUSES[cause.kind].cure


def outcome_words(hit: Outcomes) -> str:
    """Return the requests that missed the objective, such as "2,785 late, 12 failed of 23,088 requests"."""
    parts = [f"{hit[column]:,} {word}" for column, word in ((LATE, "late"), (FAILED, "failed"), (REJECTED, "rejected"))]
    known = ", ".join(part for part in parts if not part.startswith("0 ")) or "none missed"
    return f"{known} of {count(requests(hit), 'request')}"
