"""Design tokens: text is readable on every surface, and both light-theme blocks are equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FRONTEND = Path(__file__).parents[3] / "web/frontend"
TOKENS = (FRONTEND / "style/tokens.css").read_text()
SHEETS = [path.relative_to(FRONTEND) for path in FRONTEND.rglob("*.css") if path.name != "tokens.css"]


def block(opening: str) -> dict[str, str]:
    """Return the custom properties of the rule that starts with `opening`."""
    body = TOKENS.split(opening, 1)[1].split("}", 1)[0]
    return {name: value.strip() for name, value in re.findall(r"(--[\w-]+):\s*([^;]+);", body)}


DARK = block("/* dark is the default */\n:root {")
LIGHT = block(':root[data-theme="light"] {')
THEMES = {"dark": DARK, "light": LIGHT}


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the WCAG 2 contrast ratio of two #rrggbb colors."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("surface", ["--bg", "--surface", "--raised", "--pressed"])
@pytest.mark.parametrize("text", ["--ink", "--ink-2", "--ink-3", "--accent", "--ok", "--warn", "--bad", "--info"])
def test_text_has_a_contrast_of_4_5_on_every_surface(theme: str, surface: str, text: str) -> None:
    tokens = THEMES[theme]
    assert contrast(tokens[text], tokens[surface]) >= 4.45


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", ["ok", "warn", "bad", "info"])
def test_state_text_has_a_contrast_of_5_on_its_tint(theme: str, state: str) -> None:
    assert contrast(THEMES[theme][f"--{state}"], THEMES[theme][f"--{state}-tint"]) >= 5.0


@pytest.mark.parametrize("theme", THEMES)
def test_control_borders_and_the_filled_button_are_visible(theme: str) -> None:
    tokens = THEMES[theme]
    assert contrast(tokens["--line-control"], tokens["--surface"]) >= 3.0
    assert contrast(tokens["--on-primary"], tokens["--primary"]) >= 7.0


@pytest.mark.parametrize("theme", THEMES)
def test_heat_scale_is_monotone_in_lightness(theme: str) -> None:
    steps = [luminance(THEMES[theme][f"--heat-{step}"]) for step in range(9)]
    assert steps == sorted(steps, reverse=theme == "light")


def test_chosen_and_system_light_themes_are_equal() -> None:
    assert block(":root:not([data-theme]) {\n    color-scheme: light;") == LIGHT
    assert len(LIGHT) > 60


def test_both_themes_define_the_same_tokens() -> None:
    assert set(DARK) == set(LIGHT)


@pytest.mark.parametrize("sheet", sorted(map(str, SHEETS)))
def test_only_tokens_define_colors_and_every_used_token_exists(sheet: str) -> None:
    text = (FRONTEND / sheet).read_text()
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?!-)|rgba?\(|hsl", re.sub(r"#[a-z][\w-]*[\s,.:>{]", "", text))
    local = set(re.findall(r"(--[\w-]+):", text)) | {
        "--pitch",
        "--strip-h",
        "--strip-gap",
        "--line-h",
        "--queue-h",
        "--hour-h",
        "--overlay-h",
    }
    known = set(re.findall(r"(--[\w-]+):", TOKENS)) | local
    assert set(re.findall(r"var\((--[\w-]+)", text)) <= known
