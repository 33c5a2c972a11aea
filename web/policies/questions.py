"""The dialogs before a policy goes live: its effects in figures, and the word to type."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.utils import timezone

from controlplane.fleet.ready_engines import ready_engines
from controlplane.platform.actor import Actor
from controlplane.platform.format import NARROW_SPACE, count, rate
from controlplane.policies.approvals import approvals_of, who_may_approve, why_not_approve
from controlplane.policies.document.merge import changes_between
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import PolicyAccess
from gateway.contracts.fleet_sample import FleetSample
from web.live.feed import fleet_feed
from web.policies.schedule_words import suggested
from web.policies.words import ChangeLine, change_lines

PUBLISH, ROLL_BACK = "publish", "roll-back"
NOW, LATER = "now", "later"
"""Choices of when a version goes live."""


@dataclass(frozen=True, slots=True)
class SecondPerson:
    """The dialog's section on approvals."""

    needed: bool
    """Whether the policy requires an approval that is still missing."""
    words: str
    may_approve: bool
    own: bool
    """Whether the viewer has approved the version."""


@dataclass(frozen=True, slots=True)
class ConfirmDialog:
    """One dialog: a question as its title, the effects, and a button that repeats the verb."""

    kind: str
    version: PolicyVersion
    instead_of: int | None
    title: str
    effects: tuple[str, ...]
    changes: tuple[ChangeLine, ...]
    word: str
    """The word to type; empty if none is required."""
    label: str
    button: str
    typed: str = ""
    problem: str = ""
    verb: str = "publish"
    """The action that typing the word confirms."""
    second: SecondPerson | None = None
    """None if the policy requires no approval and none was given."""
    when: str = NOW
    at: str = ""
    """Value of the field for a later publish, in UTC."""
    at_problem: str = ""
    rejection: str = ""
    """Why the submission was rejected, if no single field is at fault."""


def word_to_type(state: PolicyAccess, engines: int) -> str:
    """Return the word that confirms a change of what is live: the pool's slug, or the policy's if it has several pools.

    Empty if none of the pools is marked production, or if no engine could be harmed.
    """
    if not engines or not any(pool.production for pool in state.pools):
        return ""
    return state.pools[0].slug if len(state.pools) == 1 else state.policy.slug


def publish_question(
    state: PolicyAccess, version: PolicyVersion, *, second: SecondPerson | None = None
) -> ConfirmDialog:
    """Return the dialog that asks whether to publish a draft."""
    engines = ready_engines(state.pools)
    word = word_to_type(state, engines)
    name = f"v{version.number}"
    live = state.live_number
    back = f"You can roll back to v{live} from the list of versions." if live else ""
    return ConfirmDialog(
        PUBLISH,
        version,
        live,
        f"Publish {name} to {reach_words(state)}?",
        (*_effects(state, engines), *((back,) if back else ())),
        _changes(state, version),
        word,
        f"Type {word} to publish {name} to {count(engines, 'engine')}",
        f"Publish {name}",
        second=second,
        when=LATER if second is not None and second.needed else NOW,
        at=suggested(timezone.now()),
    )


def second_person(state: PolicyAccess, version: PolicyVersion, actor: Actor) -> SecondPerson | None:
    """Return the approval state of the version; None if no approval is required and none was given."""
    given = approvals_of([version])[version.pk]
    needed = state.policy.needs_approval and not given
    if not needed and not given:
        return None
    names = ", ".join(item.person.get_username() for item in given)
    words = f"Approved by {names}." if given else f"Needs the approval of {who_may_approve(version)}."
    own = any(actor.user is not None and item.person_id == actor.user.pk for item in given)
    may = not own and state.may_publish and not why_not_approve(actor, version)
    return SecondPerson(needed, words, may, own)


def roll_back_question(state: PolicyAccess, version: PolicyVersion) -> ConfirmDialog:
    """Return the dialog that asks whether to publish an older version again, as a copy with a new number."""
    engines = ready_engines(state.pools)
    word = word_to_type(state, engines)
    asked = "No approval needed." if state.policy.needs_approval else ""
    copy = f"A copy of v{version.number} becomes the newest version; v{state.live_number} stays in the list."
    return ConfirmDialog(
        ROLL_BACK,
        version,
        state.live_number,
        f"Roll {reach_words(state)} back to v{version.number}?",
        (*_effects(state, engines), copy, *((asked,) if asked else ())),
        _changes(state, version),
        word,
        f"Type {word} to roll {count(engines, 'engine')} back to v{version.number}",
        f"Roll back to v{version.number}",
        verb="roll back",
    )


def wrong_word(word: str, typed: str, verb: str) -> str:
    """Return the problem of the typed word; empty if it is correct or not required."""
    if not word or typed == word:
        return ""
    mismatch = f'"{typed[:64]}" does not match.' if typed else "the field is empty."
    return f"Type {word} to {verb}: {mismatch}"


def mistyped(question: ConfirmDialog, typed: str) -> ConfirmDialog | None:
    """Return the dialog with the problem of the typed word; None if the word is correct."""
    problem = wrong_word(question.word, typed, question.verb)
    return replace(question, typed=typed[:64], problem=problem) if problem else None


def reach_words(state: PolicyAccess) -> str:
    """Return where the policy is live: its pool, or its number of pools."""
    if len(state.pools) == 1:
        return state.pools[0].name
    return f"{state.policy.name}, {count(len(state.pools), 'pool')}"


def traffic_words(state: PolicyAccess, engines: int) -> str:
    """Return the traffic that the policy routes, such as "8 engines, 9.4 requests/s"."""
    sample = fleet_feed().latest
    requests = _requests_per_s(state, sample)
    traffic = f"{rate(requests)} requests/s" if requests is not None else "traffic not reported yet"
    return f"{count(engines, 'engine')}, {traffic}"


def _effects(state: PolicyAccess, engines: int) -> tuple[str, ...]:
    return (
        f"{traffic_words(state, engines)}; takes effect in about 2{NARROW_SPACE}s.",
        "Requests already decided keep their version.",
    )


def _requests_per_s(state: PolicyAccess, sample: FleetSample | None) -> float | None:
    slugs = {pool.slug for pool in state.pools}
    rates = [pool.requests_per_s for pool in sample.pools if pool.pool_id in slugs] if sample else []
    return sum(rates) if rates else None


def _changes(state: PolicyAccess, version: PolicyVersion) -> tuple[ChangeLine, ...]:
    live = completed(state.live.document if state.live else {})
    return tuple(change_lines(changes_between(live, completed(version.document))))
