"""Applies files of objects in one transaction, or reports what they would change.

A dry run carries out the changes with all their checks and rolls them back, so that a diff promises what an apply does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from controlplane.manifests.kind import ChangeResult, Kind
from controlplane.manifests.kinds import KIND_BY_NAME, KINDS
from controlplane.manifests.models.applied_manifest import AppliedManifest
from controlplane.manifests.ownership import author_of
from controlplane.manifests.three_way import ChangedField, ThreeWay
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
_CHANGED_MEANWHILE = (ConflictError, StaleRevisionError, StalePolicyError)


class InvalidManifestsError(InvalidFieldsError):
    """Files that cannot be applied, with the problems of all objects under objects[n]."""

    summary = "Nothing was applied; see errors."


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object in a file."""

    number: int
    """Its index in the request."""
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
    action: str
    remark: str
    number: int | None = None
    """Index of the object in the request; None: it left the files."""
    source: str = ""
    fields: Sequence[ChangedField] = ()


@dataclass(slots=True)
class Applying:
    """One apply. Mutable state: what it has done so far."""

    actor: Actor
    manager: str
    dry_run: bool = False
    force: bool = False
    """Whether conflicts are overwritten."""
    gone: str = ORPHAN
    """What happens to objects that left the files: DELETE, RELEASE (they stay without management), or ORPHAN."""
    why: str = ""
    changes: list[ObjectChange] = field(default_factory=list)
    unchanged: int = 0
    _problems: list[FieldProblem] = field(default_factory=list)
    _kept: set[int] = field(default_factory=set)
    """Primary keys of the records of objects in the files."""
    _unfinished: bool = False
    """Whether a deletion continues with the next apply."""
    _newest_event: int = 0
    """Primary key of the newest audit event before this apply."""

    @property
    def conflicts(self) -> list[tuple[ObjectChange, ChangedField]]:
        """Return the fields in conflict, with their objects."""
        return [(change, item) for change in self.changes for item in change.fields if item.in_conflict]

    @property
    def applied(self) -> bool:
        """Return whether the changes are stored."""
        return not self.dry_run and (self.force or not self.conflicts)

    def run(self, manifests: Sequence[Manifest]) -> None:
        """Apply the objects and what happens to those that left the files. Raises InvalidManifestsError,
        NotAllowedError.

        Nothing is stored in a dry run, or in case of a problem, or of a conflict without `force`.
        """
        wanted = self._checked(manifests)
        with transaction.atomic():
            self._newest_event = AuditEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0
            # Locked, so that two pipelines of one repository take turns.
            own = list(self._records().select_for_update())
            for kind in KINDS:
                for manifest in manifests:
                    if manifest.kind is kind:
                        self._attempt(manifest, wanted[manifest.number])
                # The following kinds may refer to its objects: their errors would only repeat that one is missing.
                self._raise_problems()
            order = {kind.name: number for number, kind in enumerate(KINDS)}
            for row in sorted(own, key=lambda row: order.get(row.kind, -1), reverse=True):
                self._handle_gone(row)
            self._raise_problems()
            transaction.set_rollback(not self.applied)

    def _checked(self, manifests: Sequence[Manifest]) -> dict[int, dict[Path, Any]]:
        """Return the wanted fields of each object, by index. Raises InvalidManifestsError."""
        wanted = {}
        seen: dict[tuple[str, str], Manifest] = {}
        for manifest in manifests:
            first = seen.setdefault((manifest.kind.name, manifest.name), manifest)
            if first is not manifest:
                self._add(manifest, [FieldProblem("metadata", f"Is in the files twice: {first.source or '?'}.")])
            try:
                wanted[manifest.number] = manifest.kind.checked(manifest.metadata, manifest.spec)
            except InvalidInputError as error:
                self._add(manifest, error.field_problems)
        self._raise_problems()
        return wanted

    def _attempt(self, manifest: Manifest, wanted: Mapping[Path, Any]) -> None:
        try:
            # A savepoint each: after a failed statement, PostgreSQL would reject those of the next objects.
            with transaction.atomic():
                self._apply(manifest, wanted)
        except InvalidInputError as error:
            self._add(manifest, error.field_problems)
        except _CHANGED_MEANWHILE as error:
            self._add(manifest, [FieldProblem("", str(error))])
        except NotAllowedError as error:
            raise NotAllowedError(f"{manifest.kind.name} {manifest.name}: {error}") from error

    def _apply(self, manifest: Manifest, wanted: Mapping[Path, Any]) -> None:
        kind, why = manifest.kind, self._why(manifest.source)
        thing = kind.find(self.actor, manifest.metadata) or self._renamed(manifest)
        before = kind.values_of(thing) if thing is not None else {}
        rows = AppliedManifest.objects.filter(kind=kind.name, object_id=public_id(thing)) if thing is not None else ()
        others = {row.manager: row for row in rows}
        own = others.pop(self.manager, None)
        managed = {manager: row.values for manager, row in others.items()}
        sides = ThreeWay(own.values if own else {}, before, wanted, managed)
        done, action = ChangeResult(), CHANGE
        if thing is None:
            (thing, done), action = kind.create(wanted, actor=self.actor, why=why), CREATE
        elif planned := sides.to_set(lambda path: kind.default(path, before)):
            done = kind.change(thing, planned, wanted, actor=self.actor, why=why)
            thing.refresh_from_db()
        after = kind.values_of(thing)
        fields = [item for item in sides.changed({**after, **done.awaiting}) if action == CHANGE or item.path in wanted]
        fields = [self._with_author(item, thing, others) for item in fields]
        # What waits for an approval is not applied yet: until then, the live value is no change by a person.
        sources = {path: sides.applied if path in done.awaiting else after for path in wanted}
        sources |= {path: sides.applied for path in sides.applied if done.awaiting and path not in wanted}
        self._remember(manifest, thing, {path: side[path] for path, side in sources.items() if path in side})
        if fields or action == CREATE:
            source = manifest.source
            self.changes.append(
                ObjectChange(kind.name, manifest.name, action, done.remark, manifest.number, source, fields)
            )
        else:
            self.unchanged += 1

    def _renamed(self, manifest: Manifest) -> Any | None:
        """Return the object that had this name when the files were applied.

        Its name is then a field in conflict, and the object is not created twice.
        """
        record = self._records(kind=manifest.kind.name, name=manifest.name).first()
        return manifest.kind.with_id(record.object_id, manifest.kind.rows(self.actor)) if record is not None else None

    def _with_author(self, item: ChangedField, thing: Any, others: Mapping[str, AppliedManifest]) -> ChangedField:
        """Return the field with who set it, if it is in conflict, and take it over from another manager."""
        if not item.in_conflict:
            return item
        if row := others.get(item.by):
            # Without force, everything is rolled back.
            row.fields = row.stored({path: value for path, value in row.values.items() if path != item.path})
            row.save(update_fields=["fields"])
            return item
        return replace(item, by=author_of(thing, item.path, until=self._newest_event))

    def _remember(self, manifest: Manifest, thing: Any, applied: dict[Path, Any]) -> None:
        values = {"name": manifest.name, "source": manifest.source[:200], "by": self.actor.name}
        row, _ = AppliedManifest.objects.update_or_create(
            manager=self.manager,
            kind=manifest.kind.name,
            object_id=public_id(thing),
            defaults={**values, "fields": AppliedManifest.stored(applied), "applied_at": timezone.now()},
        )
        self._kept.add(row.pk)

    def _handle_gone(self, row: AppliedManifest) -> None:
        """Delete, release, or list the object of a record, if it left the files and the actor may see it."""
        kind = KIND_BY_NAME.get(row.kind)
        if row.pk in self._kept:
            return
        if kind is None or kind.with_id(row.object_id) is None:
            row.delete()
        elif (thing := kind.with_id(row.object_id, kind.rows(self.actor))) is not None:
            done = ChangeResult("is no longer in the files" if self.gone == ORPHAN else "")
            if self.gone == DELETE:
                done = self._deleted(kind, row, thing)
            self._unfinished |= done.unfinished
            # The record of an unfinished deletion stays: the next apply continues.
            if self.gone != ORPHAN and not done.unfinished:
                row.delete()
            self.changes.append(ObjectChange(row.kind, row.name, self.gone, done.remark))

    def _deleted(self, kind: Kind, row: AppliedManifest, thing: Any) -> ChangeResult:
        try:
            with transaction.atomic():
                return kind.delete(thing, actor=self.actor, why=self._why(""))
        except _CHANGED_MEANWHILE as error:
            # A pool waits for its engines, which drain first.
            if not self._unfinished:
                self._problems.append(FieldProblem("", f"{row.kind} {row.name} cannot be deleted: {error}"))
            return ChangeResult(str(error), unfinished=True)
        except NotAllowedError as error:
            raise NotAllowedError(f"{row.kind} {row.name}: {error}") from error

    def _records(self, **filters: Any) -> Any:
        return AppliedManifest.objects.filter(manager=self.manager, **filters)

    def _why(self, source: str) -> str:
        text = f"Applied by {self.manager}" + (f" from {source}" if source else "")
        return (f"{self.why} ({text})" if self.why else text)[:200]

    def _add(self, manifest: Manifest, problems: Iterable[FieldProblem]) -> None:
        named = {field_name: f"metadata.{name}" for name, field_name in manifest.kind.identity.items()}
        for one in problems:
            is_spec = one.path and one.path.partition(".")[0] not in ("metadata", "spec")
            inside = named.get(one.path) or (f"spec.{one.path}" if is_spec else one.path)
            self._problems.append(FieldProblem(f"objects[{manifest.number}].{inside}".rstrip("."), one.message))

    def _raise_problems(self) -> None:
        if self._problems:
            raise InvalidManifestsError(self._problems)


def manifest_of(document: Mapping[str, Any], number: int) -> Manifest:
    """Return the object of a checked request. Raises InvalidManifestsError for an unknown kind."""
    kind = KIND_BY_NAME.get(document["kind"])
    if kind is None:
        known = ", ".join(KIND_BY_NAME)
        raise InvalidManifestsError([FieldProblem(f"objects[{number}].kind", f"Is unknown; known are {known}.")])
    return Manifest(number, kind, document["metadata"], document["spec"], document["source"])
