"""Sovereignty rules: which tenants' requests can go from one region to another (SkyWalker §4.1, §7).

They are evaluated before any region rule. The first matching rule decides, else the document's default. A request that
stays in the region of its first contact needs no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import permutations, product
from typing import Literal

import msgspec

MAX_RULES = 100
MAX_NAMES = 100
"""Maximum tenants or regions in one rule."""
MAX_NAME = 80
MAX_NOTE = 500

SAME_REGION = "same region"
DEFAULT = "default"
RESERVED_NAMES = (SAME_REGION, DEFAULT)


class SovereigntyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Allows or denies hops. An empty list matches all."""

    name: str
    tenants: tuple[str, ...] = ()
    from_regions: tuple[str, ...] = ()
    to_regions: tuple[str, ...] = ()
    allow: bool = True
    note: str = ""
    """Reason for the rule, for operators."""

    def matches(self, tenant: str, origin: str, destination: str) -> bool:
        """Return whether the rule decides about this hop, if no earlier one did."""
        return self.concerns(tenant, origin) and (not self.to_regions or destination in self.to_regions)

    def concerns(self, tenant: str, origin: str) -> bool:
        """Return whether the rule decides about some hop of this tenant's requests from this region."""
        return (not self.tenants or tenant in self.tenants) and (not self.from_regions or origin in self.from_regions)


class SovereigntyVerdict(msgspec.Struct, frozen=True, gc=False):
    """Whether a hop is allowed, and the deciding rule: its name, `default`, or `same region`."""

    allowed: bool
    rule: str


_SAME_REGION = SovereigntyVerdict(True, SAME_REGION)


class SovereigntyDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sovereignty rules of an installation, in order of evaluation."""

    schema_version: Literal[1] = 1
    default: Literal["allow", "deny"] = "allow"
    rules: tuple[SovereigntyRule, ...] = ()

    def verdict(self, tenant: str, origin: str, destination: str) -> SovereigntyVerdict:
        """Return whether a tenant's request can go from the region of its first contact to another one."""
        if origin == destination:
            return _SAME_REGION
        for rule in self.rules:
            if rule.matches(tenant, origin, destination):
                return SovereigntyVerdict(rule.allow, rule.name)
        return SovereigntyVerdict(self.default == "allow", DEFAULT)

    def outside(self, tenant: str, origin: str, region: str) -> SovereigntyVerdict:
        """Return whether a tenant's request can leave the installation for a provider in this region ("": unknown).

        A provider in the same region is a hop, too. An unknown region matches each rule that denies a hop to some
        region, and only those rules that allow all hops.
        """
        for rule in self.rules:
            anywhere = not region and not rule.allow
            if rule.matches(tenant, origin, region) or (anywhere and rule.concerns(tenant, origin)):
                return SovereigntyVerdict(rule.allow, rule.name)
        return SovereigntyVerdict(self.default == "allow", DEFAULT)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants named in any rule, without duplicates. All others are treated alike."""
        return tuple(dict.fromkeys(tenant for rule in self.rules for tenant in rule.tenants))


ALLOW_ALL = SovereigntyDocument()


class SovereigntyProblem(msgspec.Struct, frozen=True):
    """A problem in a document, at a path such as `rules[2].to_regions`."""

    path: str
    message: str


def problems(
    document: SovereigntyDocument, regions: Collection[str], tenants: Collection[str]
) -> tuple[SovereigntyProblem, ...]:
    """Return the problems that prevent a document from taking effect with these regions and tenants.

    A rule that can never match is a problem: its author expects it to protect something.
    """
    faults = [*_malformed(document)]
    for at, rule in enumerate(document.rules):
        for field, known in (("tenants", tenants), ("from_regions", regions), ("to_regions", regions)):
            unknown = [name for name in getattr(rule, field) if name not in known]
            if unknown:
                faults.append(SovereigntyProblem(f"rules[{at}].{field}", f"unknown: {', '.join(unknown)}"))
    # Only of a sound document: a name that is unknown makes a rule unreachable too.
    return tuple(faults or _unreachable(document, sorted(regions)))


def _malformed(document: SovereigntyDocument) -> Iterator[SovereigntyProblem]:
    if len(document.rules) > MAX_RULES:
        yield SovereigntyProblem("rules", f"{len(document.rules)} rules; at most {MAX_RULES} are allowed")
    names: set[str] = set()
    for at, rule in enumerate(document.rules[:MAX_RULES]):
        if not rule.name.strip():
            yield SovereigntyProblem(f"rules[{at}].name", "a rule needs a name, which decision records quote")
        elif rule.name in RESERVED_NAMES:
            yield SovereigntyProblem(f"rules[{at}].name", f"{rule.name!r} is reserved for hops that no rule decides")
        elif rule.name in names:
            yield SovereigntyProblem(f"rules[{at}].name", f"another rule is named {rule.name!r}")
        names.add(rule.name)
        yield from _malformed_fields(f"rules[{at}]", rule)


def _malformed_fields(path: str, rule: SovereigntyRule) -> Iterator[SovereigntyProblem]:
    for field, limit in (("name", MAX_NAME), ("note", MAX_NOTE)):
        text = getattr(rule, field)
        # Decision records and logs quote it on one line.
        if len(text) > limit or not text.isprintable():
            yield SovereigntyProblem(f"{path}.{field}", f"must be one line of at most {limit} characters")
    for field in ("tenants", "from_regions", "to_regions"):
        listed = getattr(rule, field)
        if len(listed) > MAX_NAMES:
            yield SovereigntyProblem(f"{path}.{field}", f"at most {MAX_NAMES} names are allowed")
        elif len(set(listed)) < len(listed):
            yield SovereigntyProblem(f"{path}.{field}", "a name appears twice")


def _unreachable(document: SovereigntyDocument, regions: list[str]) -> Iterator[SovereigntyProblem]:
    """Yield the rules that decide about no hop.

    Rules are bits: the lowest one that matches a hop decides about it.
    """
    deciders: dict[int, int] = dict.fromkeys(range(len(document.rules)), 0)
    decides = 0
    # A set, since tenants to whom the same rules apply are one case.
    tenant_masks = {_mask(document, "tenants", tenant) for tenant in (None, *document.tenants)}
    leaving = {region: _mask(document, "from_regions", region) for region in regions}
    arriving = {region: _mask(document, "to_regions", region) for region in regions}
    for tenant_mask, (origin, destination) in product(tenant_masks, permutations(regions, 2)):
        matching = tenant_mask & leaving[origin] & arriving[destination]
        first = matching & -matching
        decides |= first
        rest = matching ^ first
        while rest:
            lowest = rest & -rest
            deciders[lowest.bit_length() - 1] |= first
            rest ^= lowest
    for at, earlier in deciders.items():
        if not decides >> at & 1:
            yield SovereigntyProblem(f"rules[{at}]", _why_never(document, at, earlier))


def _mask(document: SovereigntyDocument, field: str, name: str | None) -> int:
    """Return the rules whose list contains the name or is empty. None represents any tenant that no rule names."""
    lists = [getattr(rule, field) for rule in document.rules]
    return sum(1 << at for at, listed in enumerate(lists) if not listed or name in listed)


def _why_never(document: SovereigntyDocument, at: int, earlier: int) -> str:
    rule = document.rules[at]
    if not earlier:
        return f"{rule.name!r} can never match: no hop leads from its regions to other regions that it names"
    hiding = [other for index, other in enumerate(document.rules) if earlier >> index & 1]
    names = ", ".join(repr(other.name) for other in hiding)
    if any(other.allow != rule.allow for other in hiding):
        return f"{rule.name!r} contradicts {names}: earlier rules decide about all its hops, and otherwise"
    return f"{rule.name!r} can never match: {names} decide about all its hops before it"
