"""Applies files of objects in one transaction, or reports what they would change.

A dry run carries out the changes with all their checks and rolls them back, so that a diff promises what an apply does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from controlplane.manifests.kind import ChangeResult, Kind
from controlplane.manifests.kinds import KINDS
from controlplane.manifests.models.applied_manifest import AppliedManifest
from controlplane.manifests.ownership import author_of
from controlplane.manifests.three_way import ChangedField, FieldConflict, ThreeWay
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import public_id
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, InvalidInputError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.document.schema import Path
from controlplane.policies.publish import StalePolicyError

CREATE, CHANGE, DELETE, RELEASE, ORPHAN = "create", "change", "delete", "release", "orphan"
"""Actions. An orphan left the files and is unchanged until it is deleted or released."""


class InvalidManifestsError(InvalidFieldsError):
    """Files that cannot be applied, with the problems of all objects under objects[n]."""

    summary = "Nothing was applied; see errors."


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object in a file."""

    kind: Kind
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    source: str = ""
    """File and line."""

    @property
    def name(self) -> str:
        """Return the object's name in one text."""
        return self.kind.name_in(self.metadata)


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """What an apply does to one object, or would do."""

    kind: str
    name: str
    source: str
    action: str
    fields: tuple[ChangedField, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ObjectConflict:
    """A field in conflict, with the object that has it."""

    number: int
    """Index of the object in the request."""
    kind: str
    name: str
    source: str
    field: FieldConflict
    by: str
    """The manager or the person that set the stored value; empty: unknown."""


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Who applies the files, and how."""

    manager: str
    dry_run: bool = False
    force: bool = False
    """Whether conflicts are overwritten."""
    gone: str = ORPHAN
    """What happens to objects that left the files: DELETE, RELEASE (they stay without management), or ORPHAN."""
    why: str = ""


@dataclass(slots=True)
class Applying:
    """One apply. Mutable state: everything that it has done so far."""

    actor: Actor
    options: ApplyOptions
    changes: list[ObjectChange] = field(default_factory=list)
    conflicts: list[ObjectConflict] = field(default_factory=list)
    problems: list[FieldProblem] = field(default_factory=list)
    unchanged: int = 0
    _kept: set[int] = field(default_factory=set)
    """Primary keys of the records of objects in the files."""
    _unfinished: bool = False
    """Whether a deletion continues with the next apply."""
    _newest_event: int = 0
    """Primary key of the newest audit event before this apply."""

    def run(self, manifests: Sequence[Manifest]) -> None:
        """Apply the objects and what happens to those that left the files. Raises InvalidManifestsError,
        NotAllowedError.

        Nothing is stored in a dry run, or in case of a problem, or of a conflict without `force`.
        """
        wanted = self._checked(manifests)
        with transaction.atomic():
            # Of one manager, so that two pipelines of one repository take turns.
            self._newest_event = AuditEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0
            own = {row.pk: row for row in self._records().select_for_update()}
            for kind in KINDS:
                for number, fields in wanted.items():
                    if manifests[number].kind is kind:
                        self._attempt(number, manifests[number], fields)
                # Its objects may be missing for the following kinds, whose errors would only repeat that.
                self._raise_problems()
            self._handle_gone(row for pk, row in own.items() if pk not in self._kept)
            self._raise_problems()
            transaction.set_rollback(self.options.dry_run or bool(self.conflicts and not self.options.force))

    def _checked(self, manifests: Sequence[Manifest]) -> dict[int, dict[Path, Any]]:
        """Return the wanted fields of each object, by index. Raises InvalidManifestsError."""
        wanted = {}
        seen: dict[tuple[str, str], Manifest] = {}
        for number, manifest in enumerate(manifests):
            try:
                wanted[number] = manifest.kind.checked(manifest.metadata, manifest.spec)
            except InvalidInputError as error:
                self._add(number, manifest, error.field_problems)
            first = seen.setdefault((manifest.kind.name, manifest.name), manifest)
            if first is not manifest:
                self._add(
                    number, manifest, [FieldProblem("metadata", f"Is in the files twice: {first.source or '?'}.")]
                )
        self._raise_problems()
        return wanted

    def _attempt(self, number: int, manifest: Manifest, wanted: Mapping[Path, Any]) -> None:
        try:
            # A savepoint each: after a failed statement, PostgreSQL would reject those of the next objects.
            with transaction.atomic():
                self._apply(number, manifest, wanted)
        except InvalidInputError as error:
            self._add(number, manifest, error.field_problems)
        except (ConflictError, StaleRevisionError, StalePolicyError) as error:
            self._add(number, manifest, [FieldProblem("", str(error))])
        except NotAllowedError as error:
            raise NotAllowedError(f"{manifest.kind.name} {manifest.name}: {error}") from error

    def _apply(self, number: int, manifest: Manifest, wanted: Mapping[Path, Any]) -> None:
        kind, why = manifest.kind, self._why(manifest)
        thing = kind.find(self.actor, manifest.metadata) or self._renamed(manifest)
        before = kind.values_of(thing) if thing is not None else {}
        others = self._other_records(kind, thing)
        own = others.pop(self.options.manager, None)
        managed = {manager: row.values for manager, row in others.items()}
        sides = ThreeWay(own.values if own else {}, before, wanted, managed)
        done, action = ChangeResult(), CHANGE
        if thing is None:
            (thing, done), action = kind.create(wanted, actor=self.actor, why=why), CREATE
        elif planned := sides.to_set(lambda path: kind.default(path, before)):
            done = kind.change(thing, planned, wanted, actor=self.actor, why=why)
            thing.refresh_from_db()
        after = kind.values_of(thing)
        promised = {**after, **done.awaiting}
        changed = [item for item in sides.changed(promised) if action == CHANGE or item.path in wanted]
        self._note_conflicts(number, manifest, thing, sides.conflicts(promised), others)
        self._remember(manifest, thing, sides, after, done)
        if changed or action == CREATE:
            self.changes.append(
                ObjectChange(kind.name, manifest.name, manifest.source, action, tuple(changed), done.remark)
            )
        else:
            self.unchanged += 1

    def _renamed(self, manifest: Manifest) -> Any | None:
        """Return the object that had this name when the files were applied.

        Its name is then a field in conflict, and the object is not created twice.
        """
        record = self._records(kind=manifest.kind.name, name=manifest.name).first()
        return self._thing(manifest.kind, record.object_id) if record is not None else None

    def _other_records(self, kind: Kind, thing: Any) -> dict[str, AppliedManifest]:
        if thing is None:
            return {}
        rows = AppliedManifest.objects.filter(kind=kind.name, object_id=public_id(thing))
        return {row.manager: row for row in rows}

    def _note_conflicts(
        self,
        number: int,
        manifest: Manifest,
        thing: Any,
        conflicts: Iterable[FieldConflict],
        others: Mapping[str, AppliedManifest],
    ) -> None:
        for conflict in conflicts:
            by = conflict.manager or author_of(thing, conflict.path, before=self._newest_event)
            self.conflicts.append(
                ObjectConflict(number, manifest.kind.name, manifest.name, manifest.source, conflict, by)
            )
            # With force, this manager takes the field over; otherwise, everything is rolled back.
            if row := others.get(conflict.manager):
                row.fields = row.stored({path: value for path, value in row.values.items() if path != conflict.path})
                row.save(update_fields=["fields"])

    def _remember(
        self, manifest: Manifest, thing: Any, sides: ThreeWay, after: Mapping[Path, Any], done: ChangeResult
    ) -> None:
        # What waits for an approval is not applied yet: until then, the live value is no change by a person.
        awaiting = {path: sides.applied[path] for path in done.awaiting if path in sides.applied}
        fields = {path: after[path] for path in sides.wanted if path in after and path not in done.awaiting} | awaiting
        row, _ = AppliedManifest.objects.update_or_create(
            manager=self.options.manager,
            kind=manifest.kind.name,
            object_id=public_id(thing),
            defaults={
                "name": manifest.name,
                "fields": AppliedManifest.stored(fields),
                "source": manifest.source[:200],
                "by": self.actor.name,
                "applied_at": timezone.now(),
            },
        )
        self._kept.add(row.pk)

    def _handle_gone(self, rows: Iterable[AppliedManifest]) -> None:
        order = {kind.name: number for number, kind in enumerate(KINDS)}
        for row in sorted(rows, key=lambda row: order.get(row.kind, -1), reverse=True):
            kind = next((kind for kind in KINDS if kind.name == row.kind), None)
            if kind is None or not kind.exists(row.object_id):
                row.delete()
            elif (thing := self._thing(kind, row.object_id)) is not None:
                self._handle_orphan(kind, row, thing)

    def _handle_orphan(self, kind: Kind, row: AppliedManifest, thing: Any) -> None:
        """Delete or release an object that left the files, or list it."""
        done = ChangeResult("is no longer in the files" if self.options.gone == ORPHAN else "")
        if self.options.gone == DELETE:
            try:
                with transaction.atomic():
                    done = kind.delete(thing, actor=self.actor, why=self._why(None))
            except (ConflictError, StaleRevisionError) as error:
                # A pool waits for its engines, which drain first.
                done = ChangeResult(str(error), unfinished=True)
                if not self._unfinished:
                    self.problems.append(FieldProblem("", f"{row.kind} {row.name} cannot be deleted: {error}"))
            except NotAllowedError as error:
                raise NotAllowedError(f"{row.kind} {row.name}: {error}") from error
        self._unfinished |= done.unfinished
        # The record of an unfinished deletion stays: the next apply continues.
        if self.options.gone != ORPHAN and not done.unfinished:
            row.delete()
        self.changes.append(ObjectChange(row.kind, row.name, "", self.options.gone, (), done.remark))

    def _thing(self, kind: Kind, object_id: str) -> Any | None:
        """Return the object, if the actor may see it."""
        return next((thing for thing in kind.with_id(object_id, kind.rows(self.actor))), None)

    def _records(self, **filters: Any) -> Any:
        return AppliedManifest.objects.filter(manager=self.options.manager, **filters)

    def _why(self, manifest: Manifest | None) -> str:
        source = f" from {manifest.source}" if manifest is not None and manifest.source else ""
        text = f"Applied by {self.options.manager}{source}"
        return (f"{self.options.why} ({text})" if self.options.why else text)[:200]

    def _add(self, number: int, manifest: Manifest, problems: Iterable[FieldProblem]) -> None:
        named = {field_name: name for name, field_name in manifest.kind.identity.items()}
        for one in problems:
            first, dot, rest = one.path.partition(".")
            inside = one.path if first in ("metadata", "spec") or not first else f"spec.{one.path}"
            if first in named and not dot and not rest:
                inside = f"metadata.{named[first]}"
            self.problems.append(FieldProblem(f"objects[{number}].{inside}".rstrip("."), one.message))

    def _raise_problems(self) -> None:
        if self.problems:
            raise InvalidManifestsError(self.problems)


def manifest_of(document: Mapping[str, Any], number: int) -> Manifest:
    """Return the object of a checked request. Raises InvalidManifestsError for an unknown kind."""
    kind = next((kind for kind in KINDS if kind.name == document["kind"]), None)
    if kind is None:
        known = ", ".join(kind.name for kind in KINDS)
        raise InvalidManifestsError([FieldProblem(f"objects[{number}].kind", f"Is unknown; known are {known}.")])
    return Manifest(kind, document["metadata"], document.get("spec") or {}, document.get("source", ""))
