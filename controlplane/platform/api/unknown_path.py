"""Answers for unknown paths below /api/."""

from __future__ import annotations

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.base import ApiView
from controlplane.platform.role import Role


class Nothing(ApiView):
    """An address without anything; it says so in the API's own words, after it has refused strangers."""

    schema = None
    changes_need = Role.VIEWER

    def get(self, request: Request) -> Response:
        """Say that nothing is here."""
        raise Http404

    post = put = patch = delete = get
