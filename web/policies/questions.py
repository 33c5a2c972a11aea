"""The questions before a policy goes live: what it would do, in numbers, and what must be typed."""

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
from controlplane.policies.reading import PolicyStanding
from gateway.contracts.fleet_sample import FleetSample
from web.live.feed import fleet_feed
from web.policies.schedule_words import suggested
from web.policies.words import ChangeLine, change_lines

PUBLISH, ROLL_BACK = "publish", "roll-back"
NOW, LATER = "now", "later"
"""When a version is to go live."""


@dataclass(frozen=True, slots=True)
class SecondPerson:
    """What the question says about approvals."""

    needed: bool
    """The policy asks for an approval, and none that counts is given."""
    words: str
    may_approve: bool
    own: bool
    """Whoever looks has approved it."""


@dataclass(frozen=True, slots=True)
class ConfirmDialog:
    """One dialog: its title asks, its effects tell, its button repeats the verb."""

    kind: str
    version: PolicyVersion
    instead_of: int | None
    title: str
    effects: tuple[str, ...]
    changes: tuple[ChangeLine, ...]
    word: str
    """What must be typed; empty: nothing."""
    label: str
    button: str
    typed: str = ""
    problem: str = ""
    verb: str = "publish"
    """What typing the word does."""
    second: SecondPerson | None = None
    """None: the policy asks for no approval and nobody gave one."""
    when: str = NOW
    at: str = ""
    """The value of the field for a later moment, in UTC."""
    at_problem: str = ""
    rejection: str = ""
    """Why the answer was rejected, where no field is to blame."""


def word_to_type(standing: PolicyStanding, engines: int) -> str:
    """Return what a person types to change what is live: the pool's slug, or the policy's where it rules several.

    Empty where none of the pools is marked production, and where there is no engine that could be harmed.
    """
    if not engines or not any(pool.production for pool in standing.pools):
        return ""
    return standing.pools[0].slug if len(standing.pools) == 1 else standing.policy.slug


def publish_question(
    standing: PolicyStanding, version: PolicyVersion, *, second: SecondPerson | None = None
) -> ConfirmDialog:
    """Return the question whether a draft should go live."""
    engines = ready_engines(standing.pools)
    word = word_to_type(standing, engines)
    name = f"v{version.number}"
    live = standing.live_number
    back = f"You can roll back to v{live} from the list of versions." if live else ""
    return ConfirmDialog(
        PUBLISH,
        version,
        live,
        f"Publish {name} to {place_of(standing)}?",
        (*_effects(standing, engines), *((back,) if back else ())),
        _changes(standing, version),
        word,
        f"Type {word} to publish {name} to {count(engines, 'engine')}",
        f"Publish {name}",
        second=second,
        when=LATER if second is not None and second.needed else NOW,
        at=suggested(timezone.now()),
    )


def second_person(standing: PolicyStanding, version: PolicyVersion, actor: Actor) -> SecondPerson | None:
    """Return what there is to say about approvals of the version; None where nobody asks and nobody gave one."""
    given = approvals_of([version])[version.pk]
    needed = standing.policy.needs_approval and not given
    if not needed and not given:
        return None
    names = ", ".join(item.person.get_username() for item in given)
    words = f"Approved by {names}." if given else f"Needs the approval of {who_may_approve(version)}."
    own = any(actor.user is not None and item.person_id == actor.user.pk for item in given)
    may = not own and standing.may_publish and not why_not_approve(actor, version)
    return SecondPerson(needed, words, may, own)


def roll_back_question(standing: PolicyStanding, version: PolicyVersion) -> ConfirmDialog:
    """Return the question whether an older version should go live again, as a copy with a new number."""
    engines = ready_engines(standing.pools)
    word = word_to_type(standing, engines)
    asked = "No approval needed." if standing.policy.needs_approval else ""
    copy = f"A copy of v{version.number} becomes the newest version; v{standing.live_number} stays in the list."
    return ConfirmDialog(
        ROLL_BACK,
        version,
        standing.live_number,
        f"Roll {place_of(standing)} back to v{version.number}?",
        (*_effects(standing, engines), copy, *((asked,) if asked else ())),
        _changes(standing, version),
        word,
        f"Type {word} to roll {count(engines, 'engine')} back to v{version.number}",
        f"Roll back to v{version.number}",
        verb="roll back",
    )


def wrong_word(word: str, typed: str, verb: str) -> str:
    """Return what is wrong with what was typed to confirm a verb; empty where it is the word, or none is asked for."""
    if not word or typed == word:
        return ""
    found = f'"{typed[:64]}" does not match.' if typed else "nothing was typed."
    return f"Type {word} to {verb}: {found}"


def mistyped(question: ConfirmDialog, typed: str) -> ConfirmDialog | None:
    """Return the question with what is wrong with the typed word; None where it is right."""
    problem = wrong_word(question.word, typed, question.verb)
    return replace(question, typed=typed[:64], problem=problem) if problem else None


def place_of(standing: PolicyStanding) -> str:
    """Return where the policy is in force: its pool, or how many of them."""
    if len(standing.pools) == 1:
        return standing.pools[0].name
    return f"{standing.policy.name}, {count(len(standing.pools), 'pool')}"


def traffic_words(standing: PolicyStanding, engines: int) -> str:
    """Return what the policy steers: 8 engines, 9.4 requests/s."""
    sample = fleet_feed().latest
    requests = _requests_per_s(standing, sample)
    told = f"{rate(requests)} requests/s" if requests is not None else "traffic not reported yet"
    return f"{count(engines, 'engine')}, {told}"


def _effects(standing: PolicyStanding, engines: int) -> tuple[str, ...]:
    return (
        f"{traffic_words(standing, engines)}; takes effect in about 2{NARROW_SPACE}s.",
        "Requests already decided keep their version.",
    )


def _requests_per_s(standing: PolicyStanding, sample: FleetSample | None) -> float | None:
    slugs = {pool.slug for pool in standing.pools}
    found = [pool.requests_per_s for pool in sample.pools if pool.pool_id in slugs] if sample else []
    return sum(found) if found else None


def _changes(standing: PolicyStanding, version: PolicyVersion) -> tuple[ChangeLine, ...]:
    live = completed(standing.live.document if standing.live else {})
    return tuple(change_lines(changes_between(live, completed(version.document))))
