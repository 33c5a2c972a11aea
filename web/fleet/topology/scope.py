"""The part of the topology that a page shows: filter, order, and page number, all stored in the URL."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Self

from django.http import QueryDict
from django.urls import reverse
from django.utils.http import urlencode

from web.shell.console_request import row_number

PAGE_ROWS = 100
MAX_TEXT = 100
SORTS = {
    "place": "Place",
    "state": "State",
    "load": "Load",
    "hit": "Hit rate",
    "age": "Report age",
}
NOT_SERVING = "not-serving"


@dataclass(frozen=True, slots=True)
class TopologyScope:
    """A filter, an order, and a page number; `q` matches names, ids, addresses, and models."""

    q: str = ""
    pool: str = ""
    state: str = ""
    """One of FleetSample's states, "not-serving", or empty for all."""
    sort: str = "place"
    page: int = 1

    @classmethod
    def of(cls, query: QueryDict) -> Self:
        """Parse a URL's query. An invalid parameter is ignored, so that more is shown."""
        sort = query.get("sort", "")
        return cls(
            q=query.get("q", "").strip()[:MAX_TEXT],
            pool=query.get("pool", "")[:64],
            state=query.get("state", "")[:16],
            sort=sort if sort in SORTS else "place",
            page=row_number(query.get("page"), 5) or 1,
        )

    @property
    def filtered(self) -> bool:
        """Whether the filter can exclude engines."""
        return bool(self.q or self.pool or self.state)

    @property
    def words(self) -> str:
        """The filters in words, for a page without matches."""
        parts = {"text": self.q, "pool": self.pool, "state": self.state.replace("-", " ")}
        return ", ".join(f"{name} is {value}" for name, value in parts.items() if value)

    @property
    def query(self) -> str:
        """The query string of the URL, without the question mark."""
        defaults = asdict(TopologyScope())
        return urlencode({name: value for name, value in asdict(self).items() if value != defaults[name]})

    def address(self, **more: str) -> str:
        """Return the page's URL with further parameters, such as the open drawer."""
        query = "&".join(filter(None, (self.query, urlencode(more))))
        return f"{reverse('engines')}?{query}" if query else reverse("engines")

    def on_page(self, page: int) -> TopologyScope:
        """Return the same scope on another page."""
        return replace(self, page=page)

    def sorted_by(self, sort: str) -> TopologyScope:
        """Return the same filter with another order, on its first page."""
        return replace(self, sort=sort, page=1)

    def without(self, *names: str) -> TopologyScope:
        """Return the scope without these parts of the filter."""
        return replace(self, page=1, **{name: getattr(TopologyScope(), name) for name in names})
