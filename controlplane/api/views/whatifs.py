"""`/api/v1/whatif`."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView, by_method, taken_why
from controlplane.api.filters import exact
from controlplane.api.listing import Listing
from controlplane.api.problem import ProblemError
from controlplane.api.shapes.whatif import NewWhatIf, WhatIfShape
from controlplane.models import PolicyVersion, Recording
from controlplane.services.field_problems import problem
from controlplane.services.recordings import visible_recordings
from controlplane.services.whatifs import TooManyWaitError, start_whatif, visible_whatifs
from controlplane.whatif.conditions import conditions_of


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
        return self.once(self._start)

    def _start(self) -> Response:
        body = self.body()
        why = taken_why(body)
        recording = visible_recordings(self.actor).filter(pk=body["recording"]).first()
        if recording is None:
            raise problem("recording", "There is no such recording.")
        draft = _version(recording, "draft", body["draft"])
        base = None if body["base"] is None else _version(recording, "base", body["base"])
        try:
            conditions = conditions_of(body["conditions"])
            asked = start_whatif(recording, draft, base, conditions, actor=self.actor, why=why)
        except TooManyWaitError as error:
            raise ProblemError(409, str(error)) from error
        return self.show(asked, 201)


class OneWhatIf(ApiView):
    """One what-if."""

    noun = "what-if"
    shape = WhatIfShape

    def get(self, request: Request, *, whatif: int) -> Response:
        """Return the what-if with its answer, once there is one."""
        return self.show(visible_whatifs(self.actor).get(pk=whatif))


def _version(recording: Recording, name: str, number: int) -> PolicyVersion:
    policy = recording.pool.policy
    version = policy.versions.filter(number=number).first()
    if version is None:
        raise problem(name, f"{policy.slug} has no v{number}.")
    return version
