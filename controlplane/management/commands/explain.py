"""`manage.py explain ID`: explains one recorded decision in sentences and tables."""

from __future__ import annotations

from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.platform.actor import program
from controlplane.platform.environment import PROGRAM
from controlplane.platform.format import NARROW_SPACE, duration, plain, sentence, whole
from controlplane.request_log.api.decisions import detail
from controlplane.request_log.decision_reading import find_decision
from controlplane.request_log.decision_story.advice import CAUSE_WORDS
from controlplane.request_log.decision_story.certainty import conditions, firmness, name_of
from controlplane.request_log.decision_story.emphasis import text_of
from controlplane.request_log.decision_story.instead import instead_words, regret_of
from controlplane.request_log.decision_story.load_words import own_load
from controlplane.request_log.decision_story.service_words import service_facts
from controlplane.request_log.decision_story.story import story_of
from gateway.contracts.stored_decision import DOOR_NAMES, StoredDecision
from routing.values.counted import count

ACTOR = program("explain")


class Command(BaseCommand):
    """Explains one decision: its reasons, outcome, cost, and possible actions."""

    help = (
        f"Explain one recorded decision: {PROGRAM} explain ID (the header x-headway-decision of a response, or the "
        "X-Request-Id of a request)."
    )
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("decision_id", metavar="ID")
        parser.add_argument("--json", action="store_true", help="print the whole record as JSON")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Print the explanation."""
        decision = find_decision(ACTOR, options["decision_id"])
        if decision is None:
            raise CommandError("No recorded decision has this id; sampling may have skipped it, or it was dropped.")
        if decision.record is None:
            raise CommandError(f"The record of this decision is no longer available: {decision.gone}.")
        if options["json"]:
            document = msgspec.json.encode(detail(decision.record, stored=decision.row is not None))
            self.stdout.write(msgspec.json.format(document, indent=2).decode())
            return
        self.stdout.write("\n".join(explained(decision.record)))


def explained(stored: StoredDecision) -> list[str]:
    """Return the explanation, line by line."""
    story, decision = story_of(stored), stored.decision
    lines = [
        story.title,
        f"{story.verdict} · {decision.pool_id} · tenant {stored.tenant_id} · policy v{decision.policy_version} · "
        f"{decision.placement}, {decision.order}",
        *([f"Model asked for    {stored.asked_model}"] if stored.asked_model else ()),
        *[f"{title:<18} {text}" for title, text in service_facts(stored.service) if text],
        *([f"Came by            {DOOR_NAMES[stored.door]}"] if stored.door in DOOR_NAMES else ()),
        *([f"Agent              {stored.agent}"] if stored.agent else ()),
        *([f"X-Request-Id       {stored.client_request_id}"] if stored.client_request_id else ()),
        "",
        f"Reason             {text_of(story.why)}",
        f"What happened      {text_of(story.happened)}",
        f"What to do         {story.to_do}",
        "",
        *_candidates(stored),
    ]
    return [line.replace(NARROW_SPACE, " ") for line in [*lines, *_regret(stored), *_firm(stored)]]


def _candidates(stored: StoredDecision) -> list[str]:
    if not stored.decision.candidates:
        return ["No engine was scored."]
    heads = "".join(f"{head:>10}" for head in ("Hit, tok", "Wait", "Prefill", "Decode", "Cost", "Trust"))
    lines = [f"{'Engine':20}{heads}{'Report age':>12}"]
    known = {item.engine_id: item for item in stored.known}
    for rank, candidate in enumerate(stored.decision.candidates):
        then = known.get(candidate.engine_id)
        chosen = " *" if rank == 0 and stored.decision.engine_id else ""
        name = name_of(stored, candidate.engine_id) + chosen
        lines.append(
            f"{name:20}{whole(candidate.hit_tokens):>10}{duration(candidate.wait_s):>10}"
            f"{duration(candidate.compute_s):>10}{duration(candidate.sharing_s):>10}{plain(candidate.cost):>10}"
            f"{then.trust if then else '':>10}{duration(then.report_age_s if then else None):>12}"
        )
        if loads := own_load(candidate):
            lines.append(f"  loads {loads}")
    return lines


def _regret(stored: StoredDecision) -> list[str]:
    regret = regret_of(stored)
    if regret is None:
        return []
    instead = sentence(instead_words(stored))
    lines = ["", f"Regret: {duration(regret.seconds)}, {count(round(regret.tokens), 'token')}. {instead}"]
    return lines + [f"  {CAUSE_WORDS[cause]:38}{duration(part):>10}" for cause, part in regret.parts.items() if part]


def _firm(stored: StoredDecision) -> list[str]:
    firm = firmness(stored)
    if firm is None:
        return []
    rival, when = name_of(stored, firm.rival), conditions(stored, firm)
    if not when:
        return ["", f"{rival} cost the same or less: cost alone did not decide."]
    return ["", f"{rival} would have been chosen if"] + [f"  {what} {limit} ({was})" for what, limit, was in when]
