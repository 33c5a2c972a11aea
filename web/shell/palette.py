"""Finds pages, objects, and actions by their names, for the command palette (Ctrl+K)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, product

from django.db.models import Case, Q, QuerySet, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.access.saved_views import visible_views
from controlplane.fleet.visibility import visible_engines, visible_pools
from controlplane.incidents.notices import open_notices
from controlplane.platform.actor import Actor
from controlplane.platform.format import one_line
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role
from controlplane.platform.roles import may, may_somewhere
from controlplane.policies.reading import visible_policies
from web.shell.console_request import Listed, asked, console_actor, with_query
from web.shell.frame import ITEMS
from web.shell.typing_errors import corrections

MOST_OF_KIND = 6
MAX_WORDS = 64
MAX_KNOWN = 2000
"""Most names of each kind with which misspelled words are compared."""
_DECISION_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{4,27}")
_ENDING = re.compile(r"(?<=\w{3})(ies|y|s)$")
"""Endings that differ between a singular and its plural."""
_ENGINE_VERBS = {
    "Drain": ("engines", "drain"),
    "Quarantine": ("automation-pool", "quarantine"),
    "Maintain": ("engines", "maintenance"),
}
"""Verb of engines → the name of the page that asks about it, and its `do`."""
_ACTIONS = (
    ("Late requests", "requests?state=late", Role.VIEWER, False),
    ("Failed requests", "requests?state=failed", Role.VIEWER, False),
    ("Rejected requests", "requests?state=rejected", Role.VIEWER, False),
    ("Limit the rate of an API key", "access/keys", Role.ADMIN, True),
    ("Silence notifications", "notifications/silences?new", Role.OPERATOR, True),
    ("Connect an engine", "engines?do=connect", Role.OPERATOR, False),
    ("Paste a list of engines", "engines/paste", Role.OPERATOR, False),
    ("Start a what-if", "trials?new", Role.OPERATOR, False),
    ("Start a shadow", "trials/shadows?new", Role.OPERATOR, False),
    ("Start a canary", "trials/canaries?new", Role.OPERATOR, False),
    ("Keep a recording", "trials/recordings?new=window", Role.OPERATOR, False),
    ("Create a new API key", "access/keys?new", Role.ADMIN, True),
    ("Add a person", "access/people?new", Role.ADMIN, True),
    ("Add a tenant", "access/tenants?new", Role.ADMIN, True),
    ("Change your password", "access/you", Role.VIEWER, False),
    ("Open the API reference", "help/api", Role.VIEWER, False),
    ("Open the glossary", "help#glossary-title", Role.VIEWER, False),
)
"""Name, address, minimum role, and whether the role must apply to all pools."""


@dataclass(frozen=True, slots=True)
class PaletteRow:
    """A choice: its kind and name, a fact that distinguishes it, and the page that it opens."""

    kind: str
    name: str
    detail: str
    address: str
    icon: str = "open"
    engine_id: str = ""
    key: str = ""
    """Opens the page after G."""
    also: str = ""
    """Further words that find it."""

    def rank(self, words: str) -> int:
        """Return how well the name matches: 0 exactly, 1 from its start, 2 from the start of a word, 3 otherwise."""
        name, words = self.name.lower(), words.lower()
        return 0 if name == words else 1 if name.startswith(words) else 2 if f" {words}" in name else 3


def palette(request: HttpRequest) -> HttpResponse:
    """Return the rows of the palette for the query `q` as a fragment, by kind; kinds with the best match come first.

    Without a match, return the rows for the words with one typing error each corrected.
    """
    actor, words = console_actor(request), one_line(asked(request, "q"))[:MAX_WORDS].strip()
    meant, rows = [words], list(matches(actor, words))
    if not rows:
        meant = list(corrections(words, _known_words(actor)))
        rows = list(dict.fromkeys(chain.from_iterable(matches(actor, spelled) for spelled in meant)))
    groups: dict[str, list[PaletteRow]] = {}
    for row in rows:
        groups.setdefault(row.kind, []).append(row)

    def rank(row: PaletteRow) -> int:
        return min(row.rank(spelled) for spelled in meant)

    if words:
        # Stable: equal matches stay in their order.
        groups = {kind: sorted(rows, key=rank) for kind, rows in groups.items()}
        groups = dict(sorted(groups.items(), key=lambda group: rank(group[1][0])))
    close = meant[0] if groups and meant != [words] else ""
    return render(request, "shell/palette_rows.html", {"groups": groups, "words": words, "close": close})


def matches(actor: Actor, words: str) -> Iterator[PaletteRow]:
    """Yield what matches the words and the actor may open. Without words, yield the pages."""
    if _DECISION_ID.fullmatch(words.lower()):
        yield PaletteRow("Request", words.lower(), "", reverse("decision", args=[words.lower()]), "decisions")
    yield from _matching(words, _pages())
    if not words:
        return
    yield from _engines(actor, words)
    yield from _engine_verbs(actor, words)
    for pool in _best(visible_pools(actor).filter(_named(words)), words, "slug"):
        yield PaletteRow(
            "Pool", pool.name, pool.served_model, with_query(reverse("engines"), pool=pool.slug), "topology"
        )
        yield PaletteRow(
            "Requests", pool.name, "of the pool", with_query(reverse("requests"), pool=pool.slug), "decisions"
        )
    yield from _matching(words, _incidents(actor))
    yield from islice(_matching(words, _views(actor)), MOST_OF_KIND)
    for policy in _best(visible_policies(actor).filter(_named(words)), words, "slug"):
        yield PaletteRow("Policy", policy.name, policy.slug, reverse("policy", args=[policy.slug]), "policies")
    yield from _pool_verbs(actor, words)
    if may(actor, Role.ADMIN):
        yield from _admins_rows(words)
    yield from _matching(words, _actions(actor))


def _known_words(actor: Actor) -> Iterator[str]:
    """Yield the words of all names that the actor's searches can match."""
    yield from _ENGINE_VERBS
    rows = chain(_pages(), _incidents(actor), _views(actor), _actions(actor), _pool_verbs(actor, ""))
    for row in rows:
        yield from f"{row.name} {row.also}".split()
    named = [visible_engines(actor), visible_pools(actor), visible_policies(actor)]
    if may(actor, Role.ADMIN):
        named += [Tenant.objects.all(), ApiKey.objects.all()]
    for objects in named:
        for name in objects.order_by("name").values_list("name", flat=True)[:MAX_KNOWN]:
            yield from name.split()


def _matching(words: str, rows: Iterable[PaletteRow]) -> Iterator[PaletteRow]:
    parts = [_ENDING.sub("", part) for part in words.lower().split()]
    return (row for row in rows if all(part in f"{row.name} {row.detail} {row.also}".lower() for part in parts))


def _best(matching: QuerySet[Listed], words: str, *then: str) -> QuerySet[Listed]:
    """Return MOST_OF_KIND of the objects, those that match best first."""
    rank = Case(When(name__iexact=words, then=0), When(name__istartswith=words, then=1), default=2)
    return matching.order_by(rank, *then)[:MOST_OF_KIND]


def _named(words: str) -> Q:
    return Q(name__icontains=words) | Q(slug__icontains=words)


def _pages() -> Iterator[PaletteRow]:
    for item in ITEMS:
        yield PaletteRow("Page", item.name, "", item.address, item.icon, key=item.key, also=item.also)
        for _, name, address in item.tabs:
            if address != item.address:
                yield PaletteRow("Page", name, item.name, address, item.icon)


def _views(actor: Actor) -> Iterator[PaletteRow]:
    pages = {item.address: item for item in ITEMS}
    for view in visible_views(actor):
        yield PaletteRow("View", view.name, pages[view.path].name, view.address, pages[view.path].icon)


def _incidents(actor: Actor) -> Iterator[PaletteRow]:
    for notice in open_notices(actor):
        yield PaletteRow("Incident", notice.title, "", reverse("incident", args=[notice.number]), "incidents")


def _engines(actor: Actor, words: str) -> Iterator[PaletteRow]:
    wanted = Q(name__icontains=words) | Q(engine_id__icontains=words) | Q(url__icontains=words)
    for engine in _best(visible_engines(actor).filter(wanted), words, "name", "engine_id"):
        address = with_query("/", engine=engine.engine_id)
        yield PaletteRow("Engine", engine.name, engine.pool.name, address, "fleet", engine.engine_id)


def _admins_rows(words: str) -> Iterator[PaletteRow]:
    for tenant in _best(Tenant.objects.filter(_named(words)), words, "slug"):
        yield PaletteRow(
            "Tenant", tenant.name, tenant.slug, with_query(reverse("requests"), tenant=tenant.slug), "access"
        )
    keys = ApiKey.objects.select_related("tenant").filter(Q(name__icontains=words) | Q(tenant__slug__icontains=words))
    for key in _best(keys, words, "name", "key_id"):
        address = with_query(reverse("access-keys"), key=key.key_id)
        yield PaletteRow("API key", key.name, key.tenant.slug, address, "access")


def _pool_verbs(actor: Actor, words: str) -> Iterator[PaletteRow]:
    """Return the verbs of the pools that the actor may change, each with the page that asks about it."""
    pools = visible_pools(actor).select_related("policy").order_by("slug")
    rows = (
        PaletteRow("Action", f"{verb} {pool.name}", detail, address, "skip")
        for pool in pools
        if may(actor, Role.OPERATOR, pool)
        for verb, detail, address in (
            ("Roll back", "to an earlier version", reverse("policy", args=[pool.policy.slug])),
            ("Freeze", "its automations", with_query(reverse("automation-pool", args=[pool.slug]), do="freeze")),
        )
    )
    yield from islice(_matching(words, rows), MOST_OF_KIND)


def _engine_verbs(actor: Actor, words: str) -> Iterator[PaletteRow]:
    """Return verbs with their engine, such as "Quarantine e-03", each with the page that asks about it.

    The words are an engine's name, or the start of a verb, alone or before the start of a name.
    """
    first, _, rest = words.partition(" ")
    verbs = [verb for verb in _ENGINE_VERBS if verb.lower().startswith(first.lower())]
    wanted = Q(name__istartswith=rest) if verbs else Q(name__iexact=words)
    engines = visible_engines(actor).filter(wanted).order_by("name", "engine_id")[:MOST_OF_KIND]
    for verb, engine in product(verbs or _ENGINE_VERBS, engines):
        if may(actor, Role.OPERATOR, engine.pool):
            page, do = _ENGINE_VERBS[verb]
            address = reverse(page, args=[engine.pool.slug] if page == "automation-pool" else [])
            named = with_query(address, do=do, engine=engine.engine_id)
            yield PaletteRow("Action", f"{verb} {engine.name}", engine.pool.name, named, "skip")


def _actions(actor: Actor) -> Iterator[PaletteRow]:
    for name, address, role, everywhere in _ACTIONS:
        if may(actor, role) if everywhere else may_somewhere(actor, role):
            yield PaletteRow("Action", name, "", f"/{address}", "skip")
