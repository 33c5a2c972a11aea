"""Sovereignty rules: the first match decides, and documents with invalid rules are rejected."""

import msgspec
import pytest

from routing.regions.sovereignty import (
    ALLOW_ALL,
    DEFAULT,
    MAX_NAMES,
    MAX_RULES,
    SAME_REGION,
    SovereigntyDocument,
    SovereigntyRule,
    SovereigntyVerdict,
    problems,
)

REGIONS = ("us", "eu", "asia")
TENANTS = ("acme", "clinic")

STAYS = SovereigntyRule("clinic stays", tenants=("clinic",), from_regions=("eu",), allow=False)
TO_EU = SovereigntyRule("into the EU", to_regions=("eu",))
LEAVES_EU = SovereigntyRule("out of the EU", from_regions=("eu",), allow=False)


def said(*rules: SovereigntyRule) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in problems(SovereigntyDocument(rules=rules), REGIONS, TENANTS)]


def test_without_rules_every_hop_is_allowed():
    assert ALLOW_ALL.verdict("acme", "eu", "us") == SovereigntyVerdict(True, DEFAULT)


def test_the_first_matching_rule_decides_and_is_named():
    document = SovereigntyDocument(default="deny", rules=(STAYS, TO_EU, LEAVES_EU))
    assert document.verdict("clinic", "eu", "us") == SovereigntyVerdict(False, "clinic stays")
    assert document.verdict("clinic", "us", "eu") == SovereigntyVerdict(True, "into the EU")
    assert document.verdict("acme", "eu", "us") == SovereigntyVerdict(False, "out of the EU")
    assert document.verdict("acme", "us", "asia") == SovereigntyVerdict(False, DEFAULT)


def test_a_request_that_stays_needs_no_rule():
    document = SovereigntyDocument(default="deny", rules=(LEAVES_EU,))
    assert document.verdict("acme", "eu", "eu") == SovereigntyVerdict(True, SAME_REGION)


def test_a_valid_document_has_no_problems():
    assert said(STAYS, TO_EU, LEAVES_EU) == []


@pytest.mark.parametrize(
    ("rule", "path", "message"),
    [
        (SovereigntyRule(" "), "rules[0].name", "needs a name"),
        (SovereigntyRule(DEFAULT), "rules[0].name", "that no rule decides"),
        (SovereigntyRule("a", from_regions=("mars",)), "rules[0].from_regions", "unknown: mars"),
        (SovereigntyRule("a", to_regions=("eu", "mars")), "rules[0].to_regions", "unknown: mars"),
        (SovereigntyRule("a", tenants=("nobody",)), "rules[0].tenants", "unknown: nobody"),
        (SovereigntyRule("a", to_regions=("eu", "eu")), "rules[0].to_regions", "appears twice"),
        (SovereigntyRule("a", tenants=("acme",) * (MAX_NAMES + 1)), "rules[0].tenants", f"at most {MAX_NAMES}"),
        (SovereigntyRule("a", from_regions=("eu",), to_regions=("eu",)), "rules[0]", "no hop leads"),
    ],
)
def test_an_invalid_rule_is_rejected_with_its_path(rule, path, message):
    ((at, text),) = said(rule)
    assert at == path
    assert message in text


def test_two_rules_with_the_same_name_are_rejected():
    assert said(STAYS, msgspec.structs.replace(LEAVES_EU, name=STAYS.name)) == [
        ("rules[1].name", "another rule is named 'clinic stays'")
    ]


def test_a_rule_shadowed_by_an_earlier_one_is_rejected():
    ((path, message),) = said(LEAVES_EU, STAYS)
    assert path == "rules[1]"
    assert "can never match: 'out of the EU' decide" in message


def test_a_rule_that_opposes_earlier_ones_is_a_contradiction():
    both = (SovereigntyRule("to us", to_regions=("us",)), SovereigntyRule("to the rest", to_regions=("eu", "asia")))
    ((path, message),) = said(*both, LEAVES_EU)
    assert path == "rules[2]"
    assert "contradicts 'to us', 'to the rest'" in message


def test_a_rule_for_all_tenants_is_not_shadowed_by_rules_for_each_current_tenant():
    rules = [SovereigntyRule(tenant, tenants=(tenant,), allow=False) for tenant in TENANTS]
    assert said(*rules, SovereigntyRule("new tenants", allow=False)) == []


def test_the_number_of_rules_is_limited():
    many = [SovereigntyRule(f"rule {number}") for number in range(MAX_RULES + 1)]
    assert said(*many)[0] == ("rules", f"{MAX_RULES + 1} rules; at most {MAX_RULES} are allowed")


def test_unknown_fields_and_versions_are_rejected():
    for text in (b'{"rule":[]}', b'{"schema_version":2}', b'{"default":"maybe"}', b'{"rules":[{"name":"a","to":1}]}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=SovereigntyDocument)


def test_a_provider_in_the_same_region_is_a_hop_too():
    assert SovereigntyDocument().outside("acme", "eu", "eu") == SovereigntyVerdict(True, DEFAULT)
    stays = SovereigntyDocument(rules=(STAYS,))
    assert stays.outside("clinic", "eu", "eu") == SovereigntyVerdict(False, "clinic stays")
    assert stays.outside("acme", "eu", "eu") == SovereigntyVerdict(True, DEFAULT)
    assert stays.outside("clinic", "us", "eu") == SovereigntyVerdict(True, DEFAULT)
    within = SovereigntyDocument(rules=(TO_EU, LEAVES_EU))
    assert within.outside("acme", "eu", "eu") == SovereigntyVerdict(True, "into the EU")
    assert within.outside("acme", "eu", "us") == SovereigntyVerdict(False, "out of the EU")


def test_a_provider_of_an_unknown_region_is_denied_by_any_rule_that_denies_some_hop():
    within = SovereigntyDocument(rules=(TO_EU, LEAVES_EU))
    assert within.outside("acme", "eu", "") == SovereigntyVerdict(False, "out of the EU")
    assert within.outside("acme", "us", "") == SovereigntyVerdict(True, DEFAULT)
    not_to_us = SovereigntyRule("not to the US", to_regions=("us",), allow=False)
    assert not SovereigntyDocument(rules=(not_to_us,)).outside("acme", "eu", "").allowed
    assert not SovereigntyDocument(default="deny", rules=(TO_EU,)).outside("acme", "eu", "").allowed
    anywhere = SovereigntyRule("acme may", tenants=("acme",))
    assert SovereigntyDocument(default="deny", rules=(anywhere,)).outside("acme", "eu", "").allowed
