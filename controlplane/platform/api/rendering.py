"""Writes answers as JSON; problems under their own media type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import JSONRenderer
from typing_extensions import override

from controlplane.platform.api.problem import MEDIA_TYPE

PROBLEM = "switchyard_problem"
"""Attribute of responses that carry a problem."""


class ApiRenderer(JSONRenderer):
    """JSON without surprises: UTF-8, no NaN, and application/problem+json for errors."""

    charset = None

    @override
    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the bytes of the answer."""
        response = (renderer_context or {}).get("response")
        if response is not None and getattr(response, PROBLEM, False):
            response["Content-Type"] = MEDIA_TYPE
        return super().render(data, accepted_media_type, renderer_context)
