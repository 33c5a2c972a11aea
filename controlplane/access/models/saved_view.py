"""The filters of a page that a person has named."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

MAX_NAME = 80


class SavedView(models.Model):
    """A page with its filters, as path and query. Its owner sees it and, if it is shared, other people, too."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=MAX_NAME)
    path = models.CharField(max_length=32)
    query = models.CharField(max_length=2000)
    shared = models.BooleanField(default=False)

    class Meta:
        ordering = ("name", "id")
        constraints = (models.UniqueConstraint(fields=("owner", "path", "name"), name="saved_view_once_per_owner"),)

    @override
    def __str__(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        """Return the address that opens the view."""
        return f"{self.path}?{self.query}"
