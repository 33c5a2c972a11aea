"""The form field that selects a policy version to try."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controlplane.platform.field_problems import problem
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from web.shell.console_request import row_number
from web.shell.form_field import SELECT, FieldOption, FormField

_LISTED = 40


def listed_versions(policy: Policy) -> list[PolicyVersion]:
    """Return the versions that forms offer, the newest first."""
    return list(policy.versions.order_by("-number")[:_LISTED])


def drafts_of(policy: Policy) -> list[PolicyVersion]:
    """Return the listed versions that are not live."""
    return [listed_version for listed_version in listed_versions(policy) if listed_version.pk != policy.live_version_id]


def version_field(
    name: str,
    label: str,
    help_words: str,
    versions: Sequence[PolicyVersion],
    chosen: str,
    words: Callable[[PolicyVersion], str],
) -> FormField:
    """Return the field. If the version `chosen` is not offered, the first version is selected."""
    options = tuple(FieldOption(str(version.number), words(version)) for version in versions)
    numbers = [option.value for option in options]
    first = chosen if chosen in numbers or not numbers else numbers[0]
    return FormField(name, label, SELECT, help=help_words, options=options, chosen=(first if numbers else "",))


def version_words(version: PolicyVersion) -> str:
    """Return a version's label, such as "v3 draft", and its message."""
    live = version.policy.live_version_id
    kind = "live" if version.pk == live else "draft" if version.published_at is None else "earlier"
    return f"v{version.number} {kind}{f': {version.message[:60]}' if version.message else ''}"


def version_of(policy: Policy, name: str, text: str) -> PolicyVersion:
    """Return the version in the form; raise InvalidFieldsError at the field `name`."""
    number = row_number(text, 9)
    version = None if number is None else policy.versions.filter(number=number).first()
    if version is None:
        raise problem(name, "No such version; save a draft of the policy first.")
    return version
