"""`/api/v1/manifests`: exports objects as files, and compares and applies files."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.manifests.applying import (
    DELETE,
    ORPHAN,
    RELEASE,
    Applying,
    ApplyOptions,
    InvalidManifestsError,
    manifest_of,
)
from controlplane.manifests.export import API_VERSION, exported
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.strict_fields import ChangeBody, Document, Input, Text, Truth
from controlplane.platform.api.views import ApiView, by_method, taken_why
from controlplane.platform.field_problems import FieldProblem
from controlplane.policies.document.schema import ABSENT, path_text

MAX_OBJECTS = 5000
_MANAGER = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$"


class ManifestShape(Input):
    """One object of a file."""

    apiVersion = serializers.ChoiceField(choices=(API_VERSION,))
    kind = Text(max_length=32, help_text="Region, Policy, Tenant, Sovereignty, Pool, Engine, or ApiKey.")
    metadata = Document(help_text="What names it: name; of an engine pool and name, of a key tenant and name.")
    spec = Document(default=dict, help_text="Its fields, as in the object's own endpoint; of a policy also document.")


class SourcedManifest(ManifestShape):
    """One object of a file, with its position."""

    source = Text(default="", allow_blank=True, help_text="File and line, for the audit.")


class ManifestExport(serializers.Serializer):
    """Exported objects."""

    objects = ManifestShape(many=True)
    left_out = serializers.ListField(child=serializers.CharField(), help_text="What is not exported, and why.")


class ManifestsBody(ChangeBody):
    """All files of one manager."""

    manager = serializers.RegexField(_MANAGER, default="apply", help_text="Who manages the fields; one per repository.")
    objects = serializers.ListField(child=SourcedManifest(), max_length=MAX_OBJECTS)
    prune = Truth(default=False, help_text="Delete objects that this manager applied and that left the files.")
    release = Truth(default=False, help_text="Stop managing such objects, and leave them as they are.")
    force = Truth(default=False, help_text="Overwrite fields in conflict.")


class FieldDifference(serializers.Serializer):
    """A changed field. null: it is not set on that side."""

    path = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)


class ObjectDifference(serializers.Serializer):
    """What happens to one object."""

    kind = serializers.CharField()
    name = serializers.CharField()
    source = serializers.CharField(allow_blank=True)
    action = serializers.CharField(help_text="create, change, delete, release, or orphan (it left the files).")
    fields_changed = FieldDifference(many=True)
    remark = serializers.CharField(allow_blank=True)


class ConflictShape(serializers.Serializer):
    """A field that files would change, and that was changed since they were applied."""

    object = serializers.IntegerField(help_text="Index in the request.")
    kind = serializers.CharField()
    name = serializers.CharField()
    source = serializers.CharField(allow_blank=True)
    path = serializers.CharField()
    applied = serializers.JSONField(allow_null=True)
    stored = serializers.JSONField(allow_null=True)
    wanted = serializers.JSONField(allow_null=True)
    by = serializers.CharField(allow_blank=True, help_text="Who set the stored value.")


class ManifestsAnswer(serializers.Serializer):
    """The differences, and whether they were applied."""

    applied = serializers.BooleanField()
    unchanged = serializers.IntegerField(help_text="Number of objects that equal their files.")
    changes = ObjectDifference(many=True)
    conflicts = ConflictShape(many=True)


class ManifestsView(ApiView):
    """The objects as files."""

    noun = "manifests"
    answers = by_method(GET=(200, ManifestExport))
    parameters = (
        OpenApiParameter("kind", str, many=True, description="Kinds to export; default: all."),
        OpenApiParameter("defaults", bool, description="Include fields with default values."),
    )

    def get(self, request: Request) -> Response:
        """Return every object that the caller may see, without secrets. Applied unchanged, it changes nothing."""
        query = request.query_params
        export = exported(
            self.actor, kinds=query.getlist("kind"), defaults=query.get("defaults", "").lower() in ("true", "1")
        )
        return Response(ManifestExport({"objects": export.objects, "left_out": export.left_out}).data)


class ManifestApply(ApiView):
    """Files to apply."""

    noun = "manifests"
    bodies = by_method(POST=ManifestsBody)
    answers = by_method(POST=(200, ManifestsAnswer))

    def post(self, request: Request) -> Response:
        """Apply all objects or none. Responds with 409 and `conflicts` if a field was changed since the last apply."""
        answer = self.outcome(dry_run=False)
        if not answer["applied"]:
            errors = [
                FieldProblem(f"objects[{one['object']}].spec.{one['path']}", _conflict_words(one))
                for one in answer["conflicts"]
            ]
            detail = "Nothing was applied: fields were changed since the last apply. Take their values into the files, "
            raise ProblemError(409, detail + "or apply with force.", errors, members=answer)
        return Response(answer)

    def outcome(self, *, dry_run: bool) -> Any:
        """Apply the objects of the body, and return the answer."""
        body = self.body()
        if body["prune"] and body["release"]:
            raise InvalidManifestsError([FieldProblem("release", "Choose prune or release.")])
        gone = DELETE if body["prune"] else RELEASE if body["release"] else ORPHAN
        options = ApplyOptions(body["manager"], dry_run, body["force"], gone, taken_why(body))
        applying = Applying(self.actor, options)
        applying.run([manifest_of(document, number) for number, document in enumerate(body["objects"])])
        return answer_of(applying)


class ManifestDiff(ManifestApply):
    """Files to compare."""

    only_asks = True

    def post(self, request: Request) -> Response:
        """Report what an apply would do, after all its checks. Nothing is stored."""
        return Response(self.outcome(dry_run=True))


def answer_of(applying: Applying) -> dict[str, Any]:
    """Return the outcome in the API's format."""
    changes = [
        {
            **{name: getattr(change, name) for name in ("kind", "name", "source", "action", "remark")},
            "fields_changed": [
                {"path": path_text(item.path), "before": _shown(item.before), "after": _shown(item.after)}
                for item in change.fields
            ],
        }
        for change in applying.changes
    ]
    conflicts = [
        {
            "object": one.number,
            **{name: getattr(one, name) for name in ("kind", "name", "source", "by")},
            "path": path_text(one.field.path),
            **{name: _shown(getattr(one.field, name)) for name in ("applied", "stored", "wanted")},
        }
        for one in applying.conflicts
    ]
    applied = not applying.options.dry_run and (applying.options.force or not conflicts)
    return {"applied": applied, "unchanged": applying.unchanged, "changes": changes, "conflicts": conflicts}


def _conflict_words(conflict: dict[str, Any]) -> str:
    by = f" by {conflict['by']}" if conflict["by"] else ""
    return f"Was set{by} to {conflict['stored']!r}; the files want {conflict['wanted']!r}."


def _shown(value: Any) -> Any:
    return None if value is ABSENT else value
