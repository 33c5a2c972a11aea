"""Policies in files. Their documents are compared by setting, and published as versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from rest_framework import serializers
from typing_extensions import override

from controlplane.manifests.kind import ChangeResult, Kind
from controlplane.manifests.three_way import Values
from controlplane.platform.actor import Actor
from controlplane.platform.api.strict_fields import Document
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.policies import publish
from controlplane.policies.approvals import lacks_approval, who_may_approve
from controlplane.policies.document.paths import same_value, value_at, with_value
from controlplane.policies.document.problems import InvalidPolicyError, validated
from controlplane.policies.document.schema import ABSENT, MapSchema, Node, Path, SettingSchema, path_text, policy_schema
from controlplane.policies.document.text import completed, members_of, ordered
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from planning.documents.policy_with_automation import AUTOMATION
from routing.policy.schema_versions import FIELD
from routing.registry import STAGES

DOCUMENT = "document"
NAME = "name"
_DRAFTS = 20
"""Number of newest drafts that are compared with the wanted document."""


class PolicyKind(Kind):
    """Policies. A changed document is published or, where a policy requires it, drafted for approval."""

    @override
    def spec_fields(self) -> dict[str, serializers.Field]:
        """Add the document."""
        return {**super().spec_fields(), DOCUMENT: Document(required=False)}

    @override
    def checked(self, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[Path, Any]:
        """Return the fields, with one for each setting of the document."""
        values = super().checked(metadata, spec)
        document = values.pop((DOCUMENT,), {})
        usual = completed({})
        for inside in ((FIELD,), (AUTOMATION, FIELD)):
            current = value_at(usual, inside)
            if value_at(document, inside) not in (ABSENT, current):
                message = f"Is not the current schema, {current}; export the policy for its form today."
                raise problem(path_text((DOCUMENT, *inside)), message)
        return {**values, **_settings(document)}

    @override
    def values_of(self, thing: Policy) -> dict[Path, Any]:
        """Return the fields, with one for each setting of the live version."""
        return {**super().values_of(thing), **_settings(_live_document(thing))}

    @override
    def exported(self, thing: Policy, *, defaults: bool) -> dict[str, Any]:
        """Return the fields and the live version's document."""
        spec, document = super().exported(thing, defaults=defaults), _live_document(thing)
        return {**spec, DOCUMENT: document if defaults else _deviations(document)} if document else spec

    @override
    def default(self, path: Path, stored: Values) -> Any:
        """Return a setting's default under the live rules; ABSENT for an entry of a map."""
        if path[0] != DOCUMENT:
            return super().default(path, stored)
        if path[2:] == (NAME,):
            return value_at(completed({}), path[1:])
        named = {stage: stored.get((DOCUMENT, stage, NAME)) for stage in STAGES}
        return value_at(_defaults(named), path[1:])

    @override
    def create(self, wanted: Values, *, actor: Actor, why: str) -> tuple[Any, ChangeResult]:
        """Create the policy and publish its first version."""
        fields = {path: value for path, value in wanted.items() if path[0] != DOCUMENT}
        thing, _ = super().create(fields, actor=actor, why=why)
        return thing, _published(thing, _merged({}, _inside(wanted), wanted), actor, why)

    @override
    def change(self, thing: Policy, changes: Values, wanted: Values, *, actor: Actor, why: str) -> ChangeResult:
        """Change the policy, and publish or draft a version if its document changes."""
        fields = {path: value for path, value in changes.items() if path[0] != DOCUMENT}
        super().change(thing, fields, wanted, actor=actor, why=why)
        if len(fields) == len(changes):
            return ChangeResult()
        return _published(thing, _merged(_live_document(thing), _inside(changes), wanted), actor, why)

    @override
    def delete(self, thing: Policy, *, actor: Actor, why: str) -> ChangeResult:
        """Delete a policy without versions."""
        if thing.versions.exists():
            return ChangeResult("has versions that decisions refer to; it stays without management by files")
        return super().delete(thing, actor=actor, why=why)


def _published(policy: Policy, document: Any, actor: Actor, why: str) -> ChangeResult:
    """Publish the document unless it is live. Without a required approval, draft it, and return what waits."""
    try:
        complete = ordered(msgspec.to_builtins(validated(document)))
    except InvalidPolicyError as error:
        problems = (FieldProblem(f"{DOCUMENT}.{one.path}".rstrip("."), one.message) for one in error.field_problems)
        raise InvalidFieldsError(problems) from error
    live = policy.live_version
    if live is not None and same_value(complete, _live_document(policy)):
        return ChangeResult()
    version = _drafted(policy, complete) or publish.draft(policy, complete, actor=actor, message=why)
    if lacks_approval(version):
        remark = f"v{version.number} waits for the approval of {who_may_approve(version)}; then apply again"
        return ChangeResult(remark, _settings(complete))
    publish.publish_version(version, instead_of=live.number if live else None, actor=actor, why=why)
    policy.refresh_from_db()
    return ChangeResult(f"v{version.number} is live")


def _drafted(policy: Policy, complete: Any) -> PolicyVersion | None:
    """Return the draft of the same document that is newer than the live version."""
    live = policy.live_version.number if policy.live_version else 0
    drafts = policy.versions.filter(published_at=None, number__gt=live).order_by("-number")[:_DRAFTS]
    return next((draft for draft in drafts if same_value(completed(draft.document), complete)), None)


def _live_document(policy: Policy) -> dict[str, Any]:
    """Return the complete document of the live version; empty if no version is live."""
    return completed(policy.live_version.document) if policy.live_version else {}


def _merged(document: Any, changes: Values, wanted: Values) -> Any:
    """Return the document with the changed settings. Another rule starts with the wanted parameters alone."""
    renamed = [stage for stage in STAGES if (stage, NAME) in changes]
    for stage in renamed:
        inside = {path[3:]: value for path, value in wanted.items() if path[:3] == (DOCUMENT, stage, "params")}
        # A rule that left the files is the default one, with the parameters of the default document.
        rule: Any = {NAME: changes[stage, NAME], "params": {}}
        if (DOCUMENT, stage, NAME) not in wanted:
            rule = completed({})[stage]
        for path, value in inside.items():
            rule = with_value(rule, ("params", *path), value)
        document = with_value(document, (stage,), rule)
    for path, value in changes.items():
        if path[0] not in renamed:
            document = with_value(document, path, value)
    return document


def _inside(values: Values) -> dict[Path, Any]:
    """Return the settings of the document, by their paths in it."""
    return {path[1:]: value for path, value in values.items() if path[0] == DOCUMENT}


def _settings(document: Any) -> dict[Path, Any]:
    """Return the settings of a document by path. An entry of a map is one setting."""
    return {(DOCUMENT, *path): value for path, value in _leaves(document, policy_schema(), ()) if path[-1] != FIELD}


def _leaves(value: Any, schema: Node | None, path: Path) -> Iterator[tuple[Path, Any]]:
    if schema is None or isinstance(schema, SettingSchema) or not isinstance(value, dict):
        yield path, value
        return
    known = {} if isinstance(schema, MapSchema) else members_of(schema, value)
    for name, item in value.items():
        yield from _leaves(item, known.get(name), (*path, name))


def _defaults(names: Mapping[str, Any]) -> Any:
    """Return the complete document with these rules and the defaults of everything else."""
    usual = completed({})
    other = {stage: {NAME: name} for stage, name in names.items() if name not in (None, usual[stage][NAME])}
    return completed(other) if other else usual


def _deviations(document: Mapping[str, Any]) -> Any:
    """Return the settings of a complete document that differ from the defaults of its rules, and other rules' names."""
    names = {stage: document[stage][NAME] for stage in STAGES if stage in document}
    usual, plain = _inside(_settings(_defaults(names))), completed({})
    kept: Any = {}
    for path, value in _inside(_settings(document)).items():
        if path not in usual or not same_value(usual[path], value):
            kept = with_value(kept, path, value)
    for stage, name in names.items():
        if stage in kept or name != plain[stage][NAME]:
            kept = with_value(kept, (stage, NAME), name)
    return ordered(kept)
