"""Sovereignty rules as form rows and as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest

from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.format import one_line
from routing.regions.sovereignty import MAX_RULES, SovereigntyDocument, SovereigntyRule
from web.shell.console_request import row_number
from web.shell.form_field import CHECKS, FieldOption, FormField

NAMES = {"tenants": "Tenants", "from_regions": "Arrive in", "to_regions": "Go to"}
"""Fields that list names, with their labels."""


@dataclass(slots=True)
class RuleRow:
    """One rule in the form; lists of names are comma-separated."""

    position: int
    name: str = ""
    tenants: str = ""
    from_regions: str = ""
    to_regions: str = ""
    allow: bool = False
    note: str = ""
    pickers: list[FormField] = field(default_factory=list)
    """A group of checkboxes per list of names."""
    errors: dict[str, str] = field(default_factory=dict)
    """Errors by field; the key "" is for the whole rule."""

    @property
    def error(self) -> str:
        """The problems in one line."""
        return " ".join(self.errors.values())

    def chosen(self, item: str) -> list[str]:
        """Return the names in one of the lists."""
        return [name for text in getattr(self, item).split(",") if (name := text.strip())]

    def offer(self, tenants: Sequence[str], regions: Sequence[str]) -> RuleRow:
        """Fill the pickers. A chosen name that no longer exists remains an option."""
        for item, label in NAMES.items():
            chosen, known = tuple(self.chosen(item)), tenants if item == "tenants" else regions
            options = tuple(FieldOption(name, name) for name in dict.fromkeys([*known, *chosen]))
            name = f"{item}-{self.position - 1}"
            self.pickers.append(FormField(name, label, CHECKS, options=options, chosen=chosen))
        return self

    def given(self) -> dict[str, Any]:
        """Return the rule in the document's format."""
        return {
            "name": self.name,
            **{item: self.chosen(item) for item in NAMES},
            "allow": self.allow,
            "note": self.note,
        }


def rows_of(document: SovereigntyDocument) -> list[RuleRow]:
    """Return one form row per rule of the document."""
    return [
        RuleRow(position, rule.name, *(", ".join(getattr(rule, item)) for item in NAMES), rule.allow, rule.note)
        for position, rule in enumerate(document.rules, 1)
    ]


def sent_rows(request: HttpRequest) -> list[RuleRow]:
    """Return the rows of a submitted form by position, without empty and removed rows."""
    columns = {item: request.POST.getlist(item)[: MAX_RULES + 1] for item in ("name", "note", "effect", "position")}
    removed = set(request.POST.getlist("remove"))
    rows = []
    for at, position in enumerate(columns["position"]):
        texts = {
            item: one_line(columns[item][at])[:4000] if at < len(columns[item]) else "" for item in ("name", "note")
        }
        texts |= {item: ", ".join(request.POST.getlist(f"{item}-{at}"))[:4000] for item in NAMES}
        if str(at) in removed or not any(texts.values()):
            continue
        effect = columns["effect"][at] if at < len(columns["effect"]) else ""
        rows.append(RuleRow(row_number(position, 4) or 0, allow=effect == "allow", **texts))
    rows.sort(key=lambda row: row.position)
    for number, row in enumerate(rows, 1):
        row.position = number
    return rows


def blamed(rows: Sequence[RuleRow], problems: Sequence[FieldProblem]) -> list[str]:
    """Attach problems to the rows that they name; return the other problems in words."""
    others = []
    for problem in problems:
        start, _, rest = problem.path.partition("]")
        number = start.removeprefix("rules[")
        if start.startswith("rules[") and number.isdecimal() and int(number) < len(rows):
            rows[int(number)].errors[rest.removeprefix(".")] = problem.message
        else:
            others.append(problem.message)
    return others


def sentence(rule: SovereigntyRule) -> str:
    """Return the rule as a sentence."""
    who = f"Requests of {_listed(rule.tenants, 'all tenants')}"
    arrived = f"that arrive in {_listed(rule.from_regions, 'any region')}"
    to = _listed(rule.to_regions, "any other region")
    return f"{who} {arrived} may {'' if rule.allow else 'not '}go to {to}."


def _listed(names: Sequence[str], all_of_them: str) -> str:
    if len(names) < 2:
        return names[0] if names else all_of_them
    return f"{', '.join(names[:-1])} or {names[-1]}"
