"""The editor's form: the displayed document, the typed values, their problems, and the page's messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.http import QueryDict

from controlplane.platform.field_problems import FieldProblem
from controlplane.policies.document.diff import DiffRun, diff_runs
from controlplane.policies.document.form import FormGroup, PolicyFormField, form_groups, typed_document
from controlplane.policies.document.merge import ChangedEntry, changes_between
from controlplane.policies.document.problems import InvalidPolicyError, problems_of
from controlplane.policies.document.text import MAX_TEXT_BYTES, completed, document_text, read_document
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.notes import missing_keys, notes_on, vain_settings
from web.shell.console_request import row_number

MAX_MESSAGE = 200
_MESSAGE = "message"

SAME = "No difference from the live version, so there is nothing to publish."
NO_MESSAGE = "Enter a reason in a sentence; it is stored with the version and in the audit."
LONG_MESSAGE = f"Longer than {MAX_MESSAGE} characters."


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """One problem of the summary; `target` is the id of its control."""

    path: str
    message: str
    target: str


@dataclass(frozen=True)
class DraftForm:
    """One state of the editor. `base` is the number of the version that was live when editing began."""

    live: PolicyVersion | None
    draft: PolicyVersion | None
    base: int | None
    text: str
    shown: Any
    """The document that the form's controls showed when they were rendered."""
    document: Any
    """The document from the text and the form together; `shown` if the text cannot be parsed."""
    message: str = ""
    checked: bool = False
    problems: tuple[FieldProblem, ...] = ()
    message_problem: str = ""
    kept_at: str = ""
    """When this invalid text was set aside; empty for text from a version and text just typed."""

    @cached_property
    def live_document(self) -> Any:
        """The live version's document, with defaults filled in."""
        return completed(self.live.document) if self.live else completed({})

    @cached_property
    def changes(self) -> tuple[ChangedEntry, ...]:
        """The values that differ from the live version."""
        return changes_between(self.live_document, completed(self.document))

    @cached_property
    def runs(self) -> tuple[DiffRun, ...]:
        """The lines of the diff to the live version."""
        return diff_runs(self.live_document, completed(self.document))

    @cached_property
    def groups(self) -> tuple[FormGroup, ...]:
        """The form's controls with their values."""
        return form_groups(self.document, self.live_document)

    @property
    def shown_groups(self) -> tuple[FormGroup, ...]:
        """The form's controls with their problems; controls of rules that are not selected are disabled."""
        return tuple(
            replace(
                group,
                fields=self._with_problems(group.fields),
                rules=tuple(
                    replace(rule, fields=self._with_problems(rule.fields)) if rule.chosen else rule
                    for rule in group.rules
                ),
            )
            for group in self.groups
        )

    @cached_property
    def notes(self) -> tuple[FieldProblem, ...]:
        """Warnings about valid values; only for a valid document."""
        if self.problems or not isinstance(self.document, dict):
            return ()
        return (*missing_keys(self.document), *vain_settings(self.document), *notes_on(completed(self.document)))

    @property
    def valid(self) -> bool:
        """Whether the document was checked and has no problems."""
        return self.checked and not self.problems

    @property
    def wrong(self) -> bool:
        """Whether a problem prevents storing the document."""
        return bool(self.problems or self.message_problem)

    @property
    def says_its_draft(self) -> bool:
        """Whether the document equals the opened draft, so that storing it again has no effect."""
        draft = self.draft
        if draft is None or draft.published_at is not None:
            return False
        stored = document_text(completed(draft.document))
        return (draft.message, draft.based_on, stored) == (self.message, self.base, self.completed_text)

    @property
    def stale(self) -> bool:
        """Whether another version went live since editing began."""
        return self.base != (self.live.number if self.live else None)

    @property
    def completed_text(self) -> str:
        """The document as it would be stored."""
        return document_text(completed(self.document))

    @property
    def shown_text(self) -> str:
        """The displayed document as the form submits it."""
        return document_text(self.document)

    @property
    def shown_problems(self) -> tuple[ShownProblem, ...]:
        """All problems in the form's order, each with its control."""
        targets = {control.path: control.id for control in self._controls()}
        order = list(targets)
        problems = [ShownProblem(one.path, one.message, targets.get(one.path, "document")) for one in self.problems]
        problems.sort(key=lambda one: order.index(one.path) if one.path in targets else len(order))
        if self.message_problem:
            problems.append(ShownProblem("", self.message_problem, _MESSAGE))
        return tuple(problems)

    @property
    def settings(self) -> int:
        """Number of settings in the form."""
        return len(self._controls())

    def _with_problems(self, fields: tuple[PolicyFormField, ...]) -> tuple[PolicyFormField, ...]:
        return tuple(
            replace(field, problems=tuple(one.message for one in self.problems if one.path == field.path))
            for field in fields
        )

    def _controls(self) -> list[PolicyFormField]:
        chosen = [field for group in self.groups for rule in group.rules if rule.chosen for field in rule.fields]
        return [*(field for group in self.groups for field in group.fields), *chosen]


def form_of_version(live: PolicyVersion | None, draft: PolicyVersion | None) -> DraftForm:
    """Return the editor with a stored draft, or with the live version (the program's defaults before the first one)."""
    source = draft or live
    document = completed(source.document if source else {})
    # Editing a version that was once published starts from the live one, with other contents.
    base = draft.based_on if draft and draft.published_at is None else (live.number if live else None)
    message = draft.message if draft else ""
    return DraftForm(live, draft, base, document_text(document), document, document, message, checked=draft is not None)


def with_problems(form: DraftForm, more: tuple[FieldProblem, ...] = (), *, message: str = "") -> DraftForm:
    """Return the form with further problems of the document or the message."""
    return replace(form, problems=(*form.problems, *more), message_problem=message)


def ready_to_store(form: DraftForm) -> DraftForm:
    """Return the form with the problems that prevent storing it as a draft."""
    return with_problems(form, message=LONG_MESSAGE) if len(form.message) > MAX_MESSAGE else form


def ready_to_publish(form: DraftForm) -> DraftForm:
    """Return the form with the problems that prevent publishing it."""
    form = ready_to_store(form)
    if form.wrong:
        return form
    same = (FieldProblem("", SAME),) if form.live and not form.changes else ()
    return with_problems(form, same, message="" if form.message else NO_MESSAGE)


def form_as_typed(
    live: PolicyVersion | None, draft: PolicyVersion | None, posted: QueryDict, *, kept_at: str = ""
) -> DraftForm:
    """Return the editor with the typed values, checked. Every value is kept, valid or not."""
    # Browsers post line breaks as CRLF. The cut is beyond the limit, so that a longer text is still reported.
    text = posted.get("document", "")[: 2 * MAX_TEXT_BYTES].replace("\r\n", "\n")
    message = " ".join(posted.get(_MESSAGE, "").split())
    base = row_number(posted.get("base"), 9)
    shown = _shown(posted.get("shown", ""), live)
    try:
        typed = {name: value for name, value in posted.items() if isinstance(value, str)}
        document = typed_document(read_document(text), shown, typed)
    except InvalidPolicyError as error:
        problems = error.field_problems
        return DraftForm(live, draft, base, text, shown, shown, message, True, problems, kept_at=kept_at)
    if document_text(document) != document_text(read_document(text)):
        text = document_text(document)
    problems = problems_of(document)
    return DraftForm(live, draft, base, text, shown, document, message, True, problems, kept_at=kept_at)


def _shown(text: str, live: PolicyVersion | None) -> Any:
    try:
        return read_document(text)
    except InvalidPolicyError:
        return completed(live.document if live else {})
