"""Checks a page in a browser: with axe-core, and for its width.

The source of axe-core is evaluated, because the page's policy permits no external script.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

SOURCE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")
LANDMARKS = ("region", "landmark-unique")
"""Rules that count whatever axe says of their weight: by landmarks people find their way without seeing the page."""
# A drawer that still fades in has other colours than the one people read.
RUN = """async ([within, only]) => {
  await Promise.allSettled(document.getAnimations().map(({ finished }) => finished));
  const options = { resultTypes: ['violations'], ...(only && { runOnly: only }) };
  const { violations } = await axe.run(within || document, options);
  return violations.map(({ id, impact, nodes }) => ({
    id, impact, text: `${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join(' | ')}`,
  }));
}"""


def serious_violations(page: Page, within: str = "") -> list[str]:
    """Return the serious and critical axe violations, and those of landmarks, once nothing moves.

    `within` is the selector of the part to check: a drawer on a page whose rest is checked without it.
    """
    _bring(page)
    return _violations(page, within, None)


def landmark_violations(page: Page) -> list[str]:
    """Return elements outside all landmarks, and landmarks without distinct names."""
    _bring(page)
    return _violations(page, "", list(LANDMARKS))


def serious_violations_in_both_themes(page: Page, within: str = "") -> list[str]:
    """Return the violations in the dark theme, and low contrast in the light one, which differs only in colors."""
    page.emulate_media(color_scheme="dark")
    violations = serious_violations(page, within)
    page.emulate_media(color_scheme="light")
    violations += [f"light: {violation}" for violation in _violations(page, within, ["color-contrast"])]
    page.emulate_media(color_scheme="dark")
    return violations


def _bring(page: Page) -> None:
    # The text of a new page can be read before its stylesheet has come.
    page.wait_for_load_state("load")
    page.evaluate(SOURCE.read_text() + "; undefined")


def _violations(page: Page, within: str, only: list[str] | None) -> list[str]:
    violations = page.evaluate(RUN, [within, only])
    return [item["text"] for item in violations if item["impact"] in SERIOUS or item["id"] in LANDMARKS]


def assert_fits(page: Page, width: int) -> None:
    """Assert that the page does not scroll sideways, and that each panel is within its width."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for panel in page.locator(".ledger-panel, .tiles").all():
        box = panel.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
