"""`/api/v1/manifests`: exports objects as files, and compares and applies files."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.manifests.applying import (
    DELETE,
    ORPHAN,
    RELEASE,
    Applying,
    InvalidManifestsError,
    ObjectChange,
    manifest_of,
)
from controlplane.manifests.export import API_VERSION, exported
from controlplane.manifests.kinds import KIND_BY_NAME
from controlplane.manifests.three_way import ChangedField
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.strict_fields import ChangeBody, Document, Input, Text, Truth
from controlplane.platform.api.views import ApiView, by_method, taken_why
from controlplane.platform.field_problems import FieldProblem
from controlplane.policies.document.schema import path_text

MAX_OBJECTS = 5000
_MANAGER = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$"


class ManifestShape(Input):
    """One object of a file."""

    apiVersion = serializers.ChoiceField(choices=(API_VERSION,))
    kind = Text(max_length=32, help_text=f"One of {', '.join(KIND_BY_NAME)}.")
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

    path = serializers.SerializerMethodField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    in_conflict = serializers.BooleanField(help_text="Whether it was changed since these files were applied.")
    applied = serializers.JSONField(allow_null=True, help_text="In a conflict, the value that was applied last.")
    by = serializers.CharField(allow_blank=True, help_text="In a conflict, who set `before`.")

    def get_path(self, item: ChangedField) -> str:
        """Return the path in the object's spec."""
        return path_text(item.path)


class ObjectDifference(serializers.Serializer):
    """What happens to one object."""

    kind = serializers.CharField()
    name = serializers.CharField()
    action = serializers.CharField(help_text="create, change, delete, release, or orphan (it left the files).")
    remark = serializers.CharField(allow_blank=True)
    number = serializers.IntegerField(allow_null=True, help_text="Index in the request; null: it left the files.")
    source = serializers.CharField(allow_blank=True)
    changed = FieldDifference(many=True, source="fields")


class ManifestsAnswer(serializers.Serializer):
    """The differences, and whether they were applied."""

    applied = serializers.BooleanField()
    unchanged = serializers.IntegerField(help_text="Number of objects that equal their files.")
    changes = ObjectDifference(many=True)


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
        defaults = query.get("defaults", "").lower() in ("true", "1")
        objects, left_out = exported(self.actor, kinds=query.getlist("kind"), defaults=defaults)
        return Response(ManifestExport({"objects": objects, "left_out": left_out}).data)


class ManifestApply(ApiView):
    """Files to apply."""

    noun = "manifests"
    bodies = by_method(POST=ManifestsBody)
    answers = by_method(POST=(200, ManifestsAnswer))

    def post(self, request: Request) -> Response:
        """Apply all objects or none. Responds with 409 if a field was changed since the last apply."""
        done = self.outcome(dry_run=False)
        answer = ManifestsAnswer(done).data
        if not done.applied:
            errors = [FieldProblem(_path(change, item), _conflict_words(item)) for change, item in done.conflicts]
            detail = "Nothing was applied: fields were changed since the last apply."
            raise ProblemError(409, detail, errors, members=answer)
        return Response(answer)

    def outcome(self, *, dry_run: bool) -> Applying:
        """Apply the objects of the body."""
        body = self.body()
        if body["prune"] and body["release"]:
            raise InvalidManifestsError([FieldProblem("release", "Choose prune or release.")])
        gone = DELETE if body["prune"] else RELEASE if body["release"] else ORPHAN
        applying = Applying(self.actor, body["manager"], dry_run, body["force"], gone, taken_why(body))
        applying.run([manifest_of(document, number) for number, document in enumerate(body["objects"])])
        return applying


class ManifestDiff(ManifestApply):
    """Files to compare."""

    only_asks = True

    @override
    def post(self, request: Request) -> Response:
        """Report what an apply would do, after all its checks. Nothing is stored."""
        return Response(ManifestsAnswer(self.outcome(dry_run=True)).data)


def _path(change: ObjectChange, item: ChangedField) -> str:
    return f"objects[{change.number}].spec.{path_text(item.path)}"


def _conflict_words(item: ChangedField) -> str:
    by = f" by {item.by}" if item.by else ""
    return f"Was set to {item.before!r}{by}; the files applied {item.applied!r} and want {item.after!r}."
