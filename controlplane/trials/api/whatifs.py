"""`/api/v1/whatif`."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.filters import exact
from controlplane.platform.api.listing import Listing
from controlplane.platform.field_problems import problem
from controlplane.request_log.recordings.lifecycle import visible_recordings
from controlplane.trials.api.named_version import version_of
from controlplane.trials.api.whatif_shape import NewWhatIf, WhatIfShape
from controlplane.trials.whatif.conditions import conditions_of
from controlplane.trials.whatif.lifecycle import start_whatif, visible_whatifs


class WhatIfs(ApiView):
    """All what-ifs, and new ones."""

    noun = "what-if"
    shape = WhatIfShape
    bodies = by_method(POST=NewWhatIf)
    answers = by_method(POST=(201, WhatIfShape))
    listing = Listing(
        {"created_at": ("created_at", "pk")}, "-created_at", {"pool": exact("pool__slug", "Slug of the pool.")}
    )

    def get(self, request: Request) -> Response:
        """List what-ifs, the newest first."""
        return self.show_page(visible_whatifs(self.actor))

    def post(self, request: Request) -> Response:
        """Have a draft compared with the live version on a recording; the answer comes with `state` done."""
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


class OneWhatIf(ApiView):
    """One what-if."""

    noun = "what-if"
    shape = WhatIfShape

    def get(self, request: Request, *, whatif: int) -> Response:
        """Return the what-if with its answer, once there is one."""
        return self.show(visible_whatifs(self.actor).get(pk=whatif))
