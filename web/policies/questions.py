"""The dialogs before a policy goes live: its effects in figures, and the word to type."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.utils import timezone

from controlplane.fleet.ready_engines import ready_engines
from controlplane.platform.actor import Actor
from controlplane.policies.approvals import approvals_of, who_may_approve, why_not_approve
from controlplane.policies.document.merge import changes_between
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import PolicyAccess
from controlplane.policies.trials_of_version import CANARY, SHADOW, SOURCES, TRIALS, WHAT_IF, Trial
from web.live.feed import fleet_feed
from web.policies.schedule_words import suggested
from web.policies.words import ChangeLine, change_lines

PUBLISH, ROLL_BACK = "publish", "roll-back"
NOW, LATER = "now", "later"
"""Choices of when a version goes live."""
_TRIAL_NAMES = {WHAT_IF: "What-if", SHADOW: "Shadow", CANARY: "Canary"}
NO_REASON = {
    PUBLISH: "A trial argues against this version. Say why it goes live nevertheless; the audit keeps it.",
    ROLL_BACK: "Say why the version goes live again; the audit keeps it.",
}


@dataclass(frozen=True, slots=True)
class SecondPerson:
    """The dialog's section on approvals."""

    given: tuple[str, ...]
    """Names of those who approved the version."""
    may: str
    """Who may approve it."""
    may_approve: bool
    own: bool
    """Whether the viewer has approved the version."""

    @property
    def needed(self) -> bool:
        """Whether the policy requires an approval that is still missing."""
        return not self.given


@dataclass(frozen=True, slots=True)
class ConfirmDialog:
    """One dialog: a question as its title, the effects, and a button that repeats the verb."""

    kind: str
    version: PolicyVersion
    instead_of: int | None
    engines: int
    """Number of ready engines in the policy's pools."""
    changes: tuple[ChangeLine, ...]
    word: str
    """The word to type; empty if none is required."""
    typed: str = ""
    problem: str = ""
    second: SecondPerson | None = None
    """None if the policy requires no approval and none was given."""
    when: str = NOW
    at: str = ""
    """Value of the field for a later publish, in UTC."""
    at_problem: str = ""
    rejection: str = ""
    """Why the submission was rejected, if no single field is at fault."""
    trials: tuple[tuple[str, Trial | None], ...] = ()
    """Kind and newest trial of the version; None: not tried in this way."""
    on_time: tuple[tuple[str, float | None], ...] = ()
    """Pool and its share of requests on time now; None: not reported."""
    why: str = ""
    why_problem: str = ""

    @property
    def against(self) -> bool:
        """Whether the result of a trial argues against the version, so that a reason is required."""
        return any(trial is not None and trial.against for _, trial in self.trials)

    @property
    def needs_why(self) -> bool:
        """Whether a reason is required: always for a rollback, which no typed word confirms."""
        return self.against or self.kind == ROLL_BACK


def word_to_type(state: PolicyAccess, engines: int) -> str:
    """Return the word that confirms a change of what is live: the pool's slug, or the policy's if it has several pools.

    Empty if none of the pools is marked production, or if no engine could be harmed.
    """
    if not engines or not any(pool.production for pool in state.pools):
        return ""
    return state.pools[0].slug if len(state.pools) == 1 else state.policy.slug


def publish_question(
    state: PolicyAccess, version: PolicyVersion, actor: Actor, *, second: SecondPerson | None = None
) -> ConfirmDialog:
    """Return the dialog that asks whether to publish a draft, with the results of its trials."""
    ways = [way for way in TRIALS if way in SOURCES]
    return replace(
        _question(PUBLISH, state, version),
        second=second,
        trials=tuple((_TRIAL_NAMES[way], SOURCES[way](actor, [version]).get(version.pk)) for way in ways),
        when=LATER if second is not None and second.needed else NOW,
        at=suggested(timezone.now()),
    )


def second_person(state: PolicyAccess, version: PolicyVersion, actor: Actor) -> SecondPerson | None:
    """Return the approval state of the version; None if no approval is required and none was given."""
    given = approvals_of([version])[version.pk]
    if not state.policy.needs_approval and not given:
        return None
    own = any(actor.user is not None and item.person_id == actor.user.pk for item in given)
    may = not own and state.may_publish and not why_not_approve(actor, version)
    names = tuple(item.person.get_username() for item in given)
    return SecondPerson(names, who_may_approve(version), may, own)


def roll_back_question(state: PolicyAccess, version: PolicyVersion) -> ConfirmDialog:
    """Return the dialog that asks whether to publish an older version again, as a copy with a new number."""
    return _question(ROLL_BACK, state, version)


def _question(kind: str, state: PolicyAccess, version: PolicyVersion) -> ConfirmDialog:
    engines, live = ready_engines(state.pools), completed(state.live.document if state.live else {})
    changes = tuple(change_lines(changes_between(live, completed(version.document))))
    word = word_to_type(state, engines) if kind == PUBLISH else ""
    return ConfirmDialog(kind, version, state.live_number, engines, changes, word, on_time=on_time_now(state))


def wrong_word(word: str, typed: str, verb: str) -> str:
    """Return the problem of the typed word; empty if it is correct or not required."""
    if not word or typed == word:
        return ""
    mismatch = f'"{typed[:64]}" does not match.' if typed else "the field is empty."
    return f"Type {word} to {verb}: {mismatch}"


def mistyped(question: ConfirmDialog, typed: str) -> ConfirmDialog | None:
    """Return the dialog with the problem of the typed word; None if the word is correct."""
    problem = wrong_word(question.word, typed, question.kind)
    return replace(question, typed=typed[:64], problem=problem) if problem else None


def unexplained(question: ConfirmDialog) -> ConfirmDialog | None:
    """Return the dialog with the problem of a missing reason; None if there is one or none is required."""
    missing = question.needs_why and not question.why
    return replace(question, why_problem=NO_REASON[question.kind]) if missing else None


def on_time_now(state: PolicyAccess) -> tuple[tuple[str, float | None], ...]:
    """Return each visible pool of the policy and its share of requests on time; None: not reported."""
    sample = fleet_feed().latest
    shares = {pool.pool_id: pool.on_time_share for pool in sample.pools} if sample else {}
    return tuple((pool.slug, shares.get(pool.slug)) for pool in state.visible)


def requests_per_s(state: PolicyAccess) -> float | None:
    """Return the rate of requests that the policy routes; None if no gateway has reported it."""
    sample, slugs = fleet_feed().latest, {pool.slug for pool in state.pools}
    rates = [pool.requests_per_s for pool in sample.pools if pool.pool_id in slugs] if sample else []
    return sum(rates) if rates else None
