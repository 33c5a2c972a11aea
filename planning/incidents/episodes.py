"""Opens one episode per trouble, follows it, and closes it: the state machine over the symptoms.

An episode belongs to one pool, or to the whole fleet (pool "") if a gateway, a node, a link, or a job is the trouble.
Its memory is small and is stored between steps, so that a restart continues the same episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from planning.incidents import causes as kinds
from planning.incidents import symptoms as troubles
from planning.incidents.causes import IncidentCause, find_causes, is_certain, outage_cause, ranked
from planning.incidents.scene import GUARD_S
from planning.incidents.signs import ALL, Change, FleetSigns, SignLog, Tables, on_time_share, sum_tables, tables_since
from planning.incidents.symptoms import FLEET_WIDE, GATEWAY_LATE, OF_REQUESTS, STEADY_S, Symptom, find_symptoms

_HITS_NOTHING = {
    troubles.NODE_LOST, troubles.LINK_DOWN, troubles.REGION_CUT, troubles.JOB_FAILING, troubles.CANARY_ABORTED,
    troubles.HITS_FELL, troubles.EVICTING,
}  # fmt: skip
"""Symptoms that hit no request by themselves."""
COUNTED_BEFORE_S = 5.0
"""Requests that ended in these seconds before the onset are hit: streams break before their engine counts as lost."""
CLOSES_AFTER_S = 120.0
"""Seconds without a symptom after which an episode closes."""
RETURNS_WITHIN_S = 600.0
"""Seconds after its end within which the same trouble continues its episode instead of opening another."""
SETTLE_S = 8.0
"""Seconds after the onset before which no cause is certain, unless it is an event such as a crash."""
WORSE_BY, WORSE_EVERY_S = 0.10, 120.0
FADES_PER_S = 0.0015
"""How fast evidence that no longer shows loses confidence."""
MAX_CAUSES, MAX_SYMPTOMS, MAX_CLOSED = 5, 16, 32

News = Literal["opened", "worse", "cause", "closed", "returned"]


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One incident from its onset to its end. Times are Unix seconds."""

    key: str
    """Unique name: its pool, and its onset."""
    pool_id: str
    onset: float
    opened: float
    last_bad: float
    """When a symptom was last there."""
    closed: float | None = None
    symptoms: tuple[Symptom, ...]
    """Each symptom once, oldest first, as it was last."""
    present: tuple[tuple[str, str, str], ...] = ()
    """Identities of the symptoms that are there now."""
    causes: tuple[IncidentCause, ...] = ()
    certain: bool = False
    on_time: float | None = None
    """Share of requests on time in the last minute, 0..1."""
    lowest: float | None = None
    reported_low: float = 1.0
    reported_at: float = 0.0
    hit: Tables = {}
    """Requests that ended from COUNTED_BEFORE_S before the onset to the last symptom."""
    before: Tables = {}
    """Requests of the minutes before the onset, at most ten."""
    before_s: float = 0.0
    counted: dict[str, Tables] = {}
    """Pool id → its counters up to which `hit` has counted."""
    counted_from: float = 0.0
    """`hit` counts the requests that ended between these two times."""
    counted_to: float = 0.0
    dismissed: bool = False
    """A person has closed it: its symptoms open no new episode while they last."""


class IncidentMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The open episodes, and those that closed in the last minutes."""

    episodes: tuple[Episode, ...] = ()
    closed: tuple[Episode, ...] = ()


class EpisodeNews(msgspec.Struct, frozen=True):
    """A change of an episode that people want to know of."""

    kind: News
    episode: Episode


def advance(
    memory: IncidentMemory, log: SignLog, changes: Sequence[Change], dismissed: Iterable[str] = ()
) -> tuple[IncidentMemory, list[EpisodeNews]]:
    """Return the memory after the newest reading, and what changed. `dismissed` are keys that a person has closed."""
    newest = log.newest
    if newest is None:
        return memory, []
    closed_by_hand = set(dismissed)
    known = [
        msgspec.structs.replace(item, dismissed=item.dismissed or item.key in closed_by_hand)
        for item in memory.episodes
    ]
    # After a long stop of the program, trouble is another one.
    episodes = [item for item in known if newest.at - item.last_bad <= RETURNS_WITHIN_S]
    ongoing = {identity for item in episodes for identity in item.present}
    symptoms = [*find_symptoms(log, ongoing), *_aborted(changes, newest.at)]
    owned, free = _assigned(episodes, symptoms, log, changes)
    ended = [msgspec.structs.replace(item, closed=item.last_bad) for item in known if item not in episodes]
    news = [EpisodeNews("closed", item) for item in ended if not item.dismissed]
    kept: list[Episode] = []
    closed = [item for item in memory.closed if newest.at - item.last_bad <= RETURNS_WITHIN_S][-MAX_CLOSED:]
    for episode in episodes:
        after = _followed(episode, owned[episode.key], log, changes)
        news += _news(episode, after)
        if after.closed is None:
            kept.append(after)
        else:
            closed.append(after)
    for episode, is_new in _opened(free, closed, log, changes):
        closed = [item for item in closed if item.key != episode.key]
        kept.append(episode)
        news.append(EpisodeNews("opened" if is_new else "returned", episode))
    return IncidentMemory(episodes=tuple(kept), closed=tuple(closed)), news


def _aborted(changes: Sequence[Change], now: float) -> list[Symptom]:
    return [
        Symptom(kind=troubles.CANARY_ABORTED, pool_id=item.pool_id, subject=item.subject, name=item.text, since=item.at)
        for item in changes
        if item.kind == "canary" and 0 <= now - item.at <= troubles.EVENT_S
    ]


def _assigned(
    episodes: Sequence[Episode], symptoms: Sequence[Symptom], log: SignLog, changes: Sequence[Change]
) -> tuple[dict[str, list[Symptom]], list[Symptom]]:
    """Return each episode's symptoms, and those that belong to none."""
    owned: dict[str, list[Symptom]] = {item.key: [] for item in episodes}
    free = []
    for symptom in symptoms:
        owner = _owner(episodes, symptom, log, changes)
        if owner is None:
            free.append(symptom)
        else:
            owned[owner.key].append(symptom)
    return owned, free


def _owner(episodes: Sequence[Episode], symptom: Symptom, log: SignLog, changes: Sequence[Change]) -> Episode | None:
    for episode in episodes:
        if symptom.identity in {item.identity for item in episode.symptoms}:
            return episode
    if symptom.kind in FLEET_WIDE:
        # It explains an open episode, or follows from its cause.
        kind = _CAUSES[symptom.kind]
        explained = (
            item for item in episodes if any(cause.kind == kind for cause in item.causes) or _follows(symptom, item)
        )
        return next(explained, None)
    mine = [item for item in episodes if symptom.pool_id == item.pool_id and not item.dismissed]
    if mine:
        return mine[-1]
    causes = find_causes(log, [symptom.pool_id], symptom.since, changes)
    if causes and causes[0].identity == (kinds.CRASHED, symptom.subject):
        # No trouble of the whole fleet ends one process.
        return None
    there = [item for item in episodes if symptom.pool_id in {known.pool_id for known in item.symptoms}]
    if there and not there[-1].dismissed:
        return there[-1]
    wide = [item for item in episodes if not item.pool_id and item.causes]
    return next((item for item in wide if causes and causes[0].identity == item.causes[0].identity), None)


def _follows(symptom: Symptom, episode: Episode) -> bool:
    """Return whether a pool's trouble makes gateways late, or a late host makes a node, a link, or a job late."""
    kinds_there = {item.kind for item in episode.symptoms}
    return bool(kinds_there & set(OF_REQUESTS)) if symptom.kind == GATEWAY_LATE else GATEWAY_LATE in kinds_there


_CAUSES = {
    GATEWAY_LATE: kinds.GATEWAY, troubles.NODE_LOST: kinds.NODE,
    troubles.LINK_DOWN: kinds.LINK, troubles.REGION_CUT: kinds.REGION, troubles.JOB_FAILING: kinds.JOB,
}  # fmt: skip


_OWN_CAUSES = {
    troubles.ENGINE_LOST: kinds.LOST, troubles.ENGINE_SICK: kinds.FAILS,
    troubles.INDEX_BLIND: kinds.BLIND, troubles.CANARY_ABORTED: kinds.CANARY,
}  # fmt: skip
"""Symptom → the cause that it is by itself, while no request is hit."""


def _cause_of(symptom: Symptom) -> str:
    """Return the cause that a fleet-wide episode with this first symptom has."""
    return kinds.GATEWAY if symptom.pool_id else _CAUSES[symptom.kind]


def _opened(
    free: Sequence[Symptom], closed: Sequence[Episode], log: SignLog, changes: Sequence[Change]
) -> list[tuple[Episode, bool]]:
    """Return the episodes that the unassigned symptoms open, and whether each is new."""
    groups: dict[str, tuple[str, list[Symptom]]] = {}
    for symptom in free:
        if not symptom.pool_id:
            groups.setdefault(symptom.kind, ("", []))[1].append(symptom)
    for pool_id in sorted({item.pool_id for item in free if item.pool_id}):
        symptoms = [item for item in free if item.pool_id == pool_id]
        first = next(iter(_causes_of(symptoms, log, changes)), None)
        wide = (items for scope, items in groups.values() if not scope)
        explaining = next((items for items in wide if first and first.kind == _cause_of(items[0])), None)
        if explaining is None and first is not None and first.kind == kinds.GATEWAY:
            # Gateways serve all pools: the others will miss their objectives, too.
            explaining = groups.setdefault(GATEWAY_LATE, ("", []))[1]
        if explaining is not None:
            explaining.extend(symptoms)
            continue
        if any(item.kind in OF_REQUESTS for item in symptoms) and GATEWAY_LATE in groups:
            # The gateway is late, but by the trouble of this pool.
            symptoms += groups.pop(GATEWAY_LATE)[1]
        groups[f"pool {pool_id}"] = (pool_id, symptoms)
    return [_open(pool_id, symptoms, closed, log, changes) for pool_id, symptoms in groups.values()]


def _open(
    pool_id: str, symptoms: Sequence[Symptom], closed: Sequence[Episode], log: SignLog, changes: Sequence[Change]
) -> tuple[Episode, bool]:
    newest = _newest(log)
    causes = _causes_of(symptoms, log, changes)
    onset = min(item.since for item in symptoms)
    back = next((item for item in reversed(closed) if item.pool_id == pool_id and _same(item.causes, causes)), None)
    if back is not None:
        again = msgspec.structs.replace(back, closed=None, dismissed=False)
        return _followed(again, symptoms, log, changes), False
    subject = f"{symptoms[0].subject}-" if not pool_id and symptoms[0].subject else ""
    episode = Episode(
        key=f"{pool_id or 'fleet'}-{subject}{onset:.0f}",
        pool_id=pool_id,
        onset=onset,
        opened=newest.at,
        last_bad=newest.at,
        symptoms=(),
        reported_at=newest.at,
    )
    begin = log.reading_at(onset - COUNTED_BEFORE_S) or log.readings(onset - COUNTED_BEFORE_S)[0]
    usual = [log.interval(pool, max(onset - 600.0, log.oldest_at()), begin.at) for pool in _scope(episode, begin)]
    known = [item for item in usual if item is not None]
    episode = msgspec.structs.replace(
        episode,
        before=sum_tables(item.tables() for item in known),
        before_s=max((item.span_s for item in known), default=0.0),
        counted={pool: begin.pools[pool].tables for pool in _scope(episode, begin)},
        counted_from=begin.at,
        counted_to=begin.at,
    )
    opened = _followed(episode, symptoms, log, changes)
    return msgspec.structs.replace(opened, reported_low=_or(opened.lowest, 1.0)), True


def _same(one: Sequence[IncidentCause], other: Sequence[IncidentCause]) -> bool:
    """Return whether both begin with the same cause, or neither has one."""
    return [item.identity for item in one[:1]] == [item.identity for item in other[:1]]


def _followed(episode: Episode, symptoms: Sequence[Symptom], log: SignLog, changes: Sequence[Change]) -> Episode:
    """Return the episode after the newest reading with these symptoms."""
    newest = _newest(log)
    on_time = _on_time(episode, log, newest)
    if not symptoms:
        gone = newest.at - episode.last_bad
        # Right after a restart, too little is known to call it over.
        closes = gone >= CLOSES_AFTER_S and newest.at - log.oldest_at() >= STEADY_S
        return msgspec.structs.replace(
            episode, present=(), on_time=on_time, closed=episode.last_bad if closes else None
        )
    known = {item.identity: item for item in episode.symptoms}
    known |= {
        item.identity: msgspec.structs.replace(item, since=min(item.since, known[item.identity].since))
        if item.identity in known
        else item
        for item in symptoms
    }
    matches = _causes_of([*known.values()], log, changes, episode.onset)
    # After a restart, nothing before the onset is known, which most evidence is compared with.
    fades = log.oldest_at() <= episode.onset - GUARD_S
    causes = _remembered(episode, matches, newest.at - episode.last_bad if fades else 0.0)
    settled = newest.at - episode.onset >= SETTLE_S or (bool(causes) and causes[0].score >= 0.9)
    hit, counted = _counted(msgspec.structs.replace(episode, symptoms=tuple(known.values())), newest)
    after = msgspec.structs.replace(
        episode,
        last_bad=newest.at,
        symptoms=tuple(sorted(known.values(), key=lambda item: item.since))[:MAX_SYMPTOMS],
        present=tuple(sorted({item.identity for item in symptoms})),
        causes=causes,
        certain=settled and is_certain(causes),
        on_time=on_time,
        lowest=min((item for item in (on_time, episode.lowest) if item is not None), default=None),
        hit=hit,
        counted=counted,
        counted_to=episode.counted_to if counted is episode.counted else newest.at,
    )
    return _with_low_reported(after, newest.at)


def _remembered(episode: Episode, matches: Sequence[IncidentCause], for_s: float) -> tuple[IncidentCause, ...]:
    """Return the causes with the highest confidence that each had, fading while its evidence does not show."""
    old = [msgspec.structs.replace(item, score=item.score - FADES_PER_S * for_s) for item in episode.causes]
    return tuple(ranked([*matches, *old])[:MAX_CAUSES])


def _causes_of(
    symptoms: Sequence[Symptom], log: SignLog, changes: Sequence[Change], onset: float | None = None
) -> list[IncidentCause]:
    """Return the causes in all pools with symptoms, and the symptoms that are troubles of their own."""
    begin = min(item.since for item in symptoms) if onset is None else onset
    pools = sorted({item.pool_id for item in symptoms if item.pool_id})
    newest = _newest(log)
    if not pools and any(item.kind == GATEWAY_LATE for item in symptoms):
        return find_causes(log, sorted(newest.pools), begin, changes, gateways_only=True)
    matches = find_causes(log, pools, begin, changes)
    if not any(item.kind in OF_REQUESTS for item in symptoms):
        # While no request is hit, an engine that crashed is all the trouble that there is.
        subjects = {item.subject for item in symptoms}
        crashed = [item for item in matches if item.kind == kinds.CRASHED and item.subject in subjects]
        matches = crashed or matches
        explained = {cause.subject for cause in matches}
        free = [item for item in symptoms if item.subject not in explained]
        matches += [cause for item in free if (cause := _itself(item, newest)) is not None]
    return ranked(matches)


def _itself(symptom: Symptom, newest: FleetSigns) -> IncidentCause | None:
    """Return the symptom as the cause, for trouble that no request has felt yet."""
    outage = next((item for item in newest.outages if item.name == symptom.subject), None)
    if outage is not None and symptom.kind in FLEET_WIDE:
        return outage_cause(outage)
    kind = _OWN_CAUSES.get(symptom.kind)
    if kind is None:
        return None
    engine = newest.engines.get(symptom.subject)
    return IncidentCause(
        kind=kind,
        subject=symptom.subject,
        name=symptom.name,
        # That an engine is sick says that something is wrong with it, not what.
        score=0.55 if symptom.kind == troubles.ENGINE_SICK else 0.7,
        text=engine.reason if engine is not None else symptom.name,
        figures={"at": symptom.since},
    )


def _counted(episode: Episode, newest: FleetSigns) -> tuple[Tables, dict[str, Tables]]:
    """Return the requests hit so far, and the counters up to which they are counted."""
    if not {item.kind for item in episode.symptoms} - _HITS_NOTHING:
        return episode.hit, episode.counted
    more: list[Tables] = [episode.hit]
    counted = dict(episode.counted)
    for pool_id in _scope(episode, newest):
        now = newest.pools[pool_id].tables
        more.append(tables_since(now, counted.get(pool_id, now)))
        counted[pool_id] = now
    return sum_tables(more), counted


def _scope(episode: Episode, signs: FleetSigns) -> list[str]:
    return sorted(pool_id for pool_id in signs.pools if episode.pool_id in ("", pool_id))


def _on_time(episode: Episode, log: SignLog, newest: FleetSigns) -> float | None:
    minutes = [log.recent(pool_id, STEADY_S) for pool_id in _scope(episode, newest)]
    together = sum_tables({ALL: {"": item.outcomes()}} for item in minutes if item is not None)
    return on_time_share(together[ALL][""]) if together else None


def _news(before: Episode, after: Episode) -> list[EpisodeNews]:
    if after.closed is not None:
        return [] if after.dismissed else [EpisodeNews("closed", after)]
    if after.dismissed:
        return []
    if after.reported_at != before.reported_at:
        return [EpisodeNews("worse", after)]
    if after.certain and not (before.certain and _same(before.causes, after.causes)):
        return [EpisodeNews("cause", after)]
    return []


def _with_low_reported(episode: Episode, now: float) -> Episode:
    """Return the episode; with its low as reported, if it is much worse than the last report."""
    low = _or(episode.lowest, 1.0)
    burns = any(kind == troubles.BURN for kind, _, _ in episode.present)
    if not burns or now - episode.reported_at < WORSE_EVERY_S or episode.reported_low - low < WORSE_BY:
        return episode
    return msgspec.structs.replace(episode, reported_low=low, reported_at=now)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _newest(log: SignLog) -> FleetSigns:
    if log.newest is None:
        raise ValueError("the log has no reading")
    return log.newest
