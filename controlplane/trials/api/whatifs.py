"""`/api/v1/whatif`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.platform.api.listing import Listing, exact
from controlplane.platform.api.strict_fields import ChangeBody, Document, WholeNumber
from controlplane.platform.api.views import Listed, ObjectView, by_method, taken_why
from controlplane.platform.field_problems import problem
from controlplane.request_log.recordings.lifecycle import visible_recordings
from controlplane.trials.api.named_version import version_of
from controlplane.trials.whatif.conditions import conditions_of
from controlplane.trials.whatif.lifecycle import start_whatif, status_of, visible_whatifs


class WhatIfShape(serializers.Serializer):
    """One what-if: its parameters, its state, and its result."""

    id = serializers.IntegerField(source="whatif.pk")
    pool = serializers.CharField(source="whatif.pool.slug")
    recording = serializers.IntegerField(source="whatif.recording_id", allow_null=True, help_text="Null: deleted.")
    recording_name = serializers.CharField(source="whatif.recording_name")
    draft = serializers.IntegerField(source="whatif.draft.number", help_text="Number of the version.")
    base = serializers.IntegerField(source="whatif.base.number", help_text="Number of the version it is compared with.")
    conditions = serializers.DictField(source="whatif.conditions")
    state = serializers.CharField(help_text="waiting, running, done, failed or cancelled.")
    progress = serializers.FloatField(source="share", help_text="Progress, 0 to 1.")
    reason = serializers.CharField(help_text="Reason for no result.")
    run = serializers.IntegerField(source="run.pk", allow_null=True, help_text="Job run, to cancel or retry.")
    result = serializers.DictField(source="whatif.result", allow_null=True)
    author = serializers.CharField(source="whatif.author.username", allow_null=True)
    created_at = serializers.DateTimeField(source="whatif.created_at")

    @override
    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Return the what-if with its state."""
        return super().to_representation(status_of(instance))


class NewWhatIf(ChangeBody):
    """Body of POST /whatif."""

    recording = WholeNumber(min_value=0, max_value=10**18 - 1, help_text="Id of the recording.")
    draft = WholeNumber(min_value=0, max_value=2**31 - 1, help_text="Number of the candidate version.")
    base = WholeNumber(
        min_value=0, max_value=2**31 - 1, required=False, allow_null=True, default=None, help_text="Null: the live one."
    )
    conditions = Document(
        required=False,
        default=dict,
        help_text="seeds (1 to 10), warmup_share, max_requests, engines, engine_model (auto: best fit to the "
        "recording, chunked, colocated, reference), base_placement (a baseline that places the base version's "
        "requests), goodput; omitted ones take their defaults.",
    )


class WhatIfs(Listed):
    """List what-ifs, newest first."""

    noun = "what-if"
    shape = WhatIfShape
    rows = staticmethod(visible_whatifs)
    bodies = by_method(POST=NewWhatIf)
    listing = Listing(
        {"created_at": ("created_at", "pk")}, "-created_at", {"pool": exact("pool__slug", "Slug of the pool.")}
    )

    def post(self, request: Request) -> Response:
        """Compare a draft with the live version on a recording. The result is available when `state` is done."""
        body = self.body()
        why = taken_why(body)
        recording = visible_recordings(self.actor).filter(pk=body["recording"]).first()
        if recording is None:
            raise problem("recording", "No such recording.")
        policy = recording.pool.policy
        draft = version_of(policy, "draft", body["draft"])
        base = None if body["base"] is None else version_of(policy, "base", body["base"])
        conditions = conditions_of(body["conditions"])
        return self.show(start_whatif(recording, draft, base, conditions, actor=self.actor, why=why), 201)


class OneWhatIf(ObjectView):
    """One what-if."""

    noun = "what-if"
    shape = WhatIfShape
    rows = staticmethod(visible_whatifs)
    field = "pk"
    says = by_method(GET="Return the what-if with its result, if available.")
