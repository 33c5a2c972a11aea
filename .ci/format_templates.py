"""Breaks lines of templates that are over 120 columns, only where white space does not show.

    python .ci/format_templates.py [--check] [FILE ...]

White space does not show between attributes, where there is white space already, next to the tags of block elements,
and between the parts of tables, lists and pictures. Elsewhere, as between two <span>, a line break would draw a gap. A
line that fits is left as it is. djlint, djade and djhtml were tried: they leave nearly all wide lines.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 120
BLOCKS = frozenset(
    {
        "html",
        "head",
        "body",
        "main",
        "section",
        "header",
        "footer",
        "article",
        "aside",
        "nav",
        "div",
        "p",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "ul",
        "ol",
        "li",
        "dl",
        "dt",
        "dd",
        "table",
        "caption",
        "colgroup",
        "col",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "td",
        "th",
        "form",
        "fieldset",
        "legend",
        "figure",
        "figcaption",
        "details",
        "summary",
        "dialog",
        "hr",
        "option",
        "optgroup",
        "meta",
        "link",
        "script",
        "title",
        "template",
    }
)
LOOSE = frozenset(
    {
        "html",
        "head",
        "ul",
        "ol",
        "dl",
        "table",
        "colgroup",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "select",
        "optgroup",
        "datalist",
        "svg",
        "g",
    }
)
"""Elements that contain only elements: white space between those does not show."""
VERBATIM = frozenset({"pre", "textarea", "script", "style", "title", "code"})
VOID = frozenset(
    {
        "area",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
        "use",
        "path",
        "rect",
        "line",
        "circle",
    }
)
FLOW = re.compile(r"{%-?\s*(if|for|with|block|autoescape|spaceless|comment|filter)\b")
FLOW_MIDDLE = re.compile(r"{%-?\s*(elif|else|empty)\b")
FLOW_END = re.compile(r"{%-?\s*end\w+")
SILENT = re.compile(r"{%-?\s*(load|extends|csrf_token)\b|{#")
TOKEN = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}|<!--.*?-->|<!\w[^>]*>|</[\w-]+\s*>|<[a-zA-Z][\w-]*", re.DOTALL)
IN_TAG = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}|\s+|/?>|[^\s\"'=<>{]+|.", re.DOTALL)
EMPTY = re.compile(r"\.([\w-]+):empty\b")
BEFORE = re.compile(r"\.([\w-]+)::before\s*{(?![^}]*position: absolute)")
"""Selectors whose style puts text before the content on its line: white space after that text shows."""
PREFORMATTED = re.compile(r"\.([\w-]+)[^{},]*{[^}]*white-space: pre")
WORDY = frozenset({"class", "aria-label", "aria-describedby", "aria-labelledby"})
"""Attributes whose white space only separates words."""
BLOCK, SPACE, ATTRIBUTE, WORD, LAST_RESORT = range(5)
COST = {BLOCK: 0, SPACE: 0, ATTRIBUTE: 6, WORD: 40, LAST_RESORT: 60}


@dataclass(frozen=True, slots=True)
class Gap:
    """A point where a line may be broken: its offset, kind, nesting depth, and whether a closing tag follows."""

    at: int
    kind: int
    depth: int
    closes: bool = False


@dataclass(slots=True)
class Node:
    """An open element, or flow tag ("%"). Mutable: the kinds of its children are noted as they are read."""

    name: str
    solid: bool = True
    """Whether all children are block elements, so that white space next to them does not show."""
    tight: bool = False
    """Whether white space alone in the element shows, by its style."""
    preformatted: bool = False
    """Whether all white space inside shows."""


@cache
def classes_of(pattern: re.Pattern[str]) -> frozenset[str]:
    """Return the classes that `pattern` matches in the style sheets."""
    sheets = (path.read_text() for path in sorted((ROOT / "web/frontend").rglob("*.css")))
    return frozenset(name for sheet in sheets for name in pattern.findall(sheet))


class Reader:
    """Finds the gaps of one template."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tight = classes_of(EMPTY) | classes_of(BEFORE)
        self._preformatted = classes_of(PREFORMATTED)
        self._gaps: list[Gap] = []
        self._asked: list[tuple[Gap, Node]] = []
        self._stack = [Node("")]
        self.depths: dict[int, int] = {}
        """Nesting depth by offset."""

    def gaps(self) -> list[Gap]:
        """Return the gaps in order."""
        at = 0
        while match := TOKEN.search(self._text, at):
            self._words(at, match.start())
            at = self._token(match)
        self._words(at, len(self._text))
        loose = [gap for gap, parent in self._asked if parent.name and (parent.name in LOOSE or parent.solid)]
        # An offset can have gaps of several kinds; the cheapest kind wins.
        best: dict[int, Gap] = {}
        for gap in sorted([*self._gaps, *loose], key=lambda item: item.kind):
            best.setdefault(gap.at, gap)
        return [best[offset] for offset in sorted(best)]

    @property
    def _parent(self) -> Node:
        return next(node for node in reversed(self._stack) if node.name != "%")

    def _note(self, at: int, kind: int, *, closes: bool = False) -> None:
        parent = self._parent
        if kind in {ATTRIBUTE, LAST_RESORT} or not (parent.preformatted or (parent.tight and kind == BLOCK)):
            self._gaps.append(Gap(at, kind, len(self._stack), closes))

    def _ask(self, at: int, *, closes: bool = False) -> None:
        """Note a gap that counts if the element around it turns out to contain only block elements."""
        if not self._parent.tight and not self._parent.preformatted:
            self._asked.append((Gap(at, BLOCK, len(self._stack), closes), self._parent))

    def _words(self, start: int, end: int) -> None:
        words = self._text[start:end]
        if not words.strip():
            return
        self._parent.solid = False
        for match in re.finditer(r"\S+", words):
            self.depths[start + match.start()] = len(self._stack)
        for match in re.finditer(r"[ \t]+", words):
            self._note(start + match.end(), SPACE)

    def _token(self, match: re.Match[str]) -> int:
        token, start, end = match[0], match.start(), match.end()
        closes = bool(token.startswith("</") or FLOW_END.match(token) or FLOW_MIDDLE.match(token))
        self.depths[start] = len(self._stack) - closes
        if self._text[start - 1 : start] in (" ", "\t"):
            self._note(start, SPACE, closes=closes)
        # Template tags and comments draw nothing themselves.
        if token.startswith(("{", "<!")):
            self._flow(token, start, end)
            return end
        if token.startswith("</"):
            self._close(token[2:-1].strip().lower(), start, end)
            return end
        return self._open(token[1:].lower(), start, end)

    def _flow(self, token: str, start: int, end: int) -> None:
        closes = bool(FLOW_END.match(token) or FLOW_MIDDLE.match(token))
        self._ask(start, closes=closes)
        if FLOW_END.match(token):
            if self._stack[-1].name == "%":
                self._stack.pop()
        elif FLOW.match(token):
            self._stack.append(Node("%"))
        elif not closes and not SILENT.match(token) and not token.startswith("<"):
            self._parent.solid = False
        self._ask(end)

    def _open(self, name: str, start: int, after: int) -> int:
        if name in BLOCKS:
            self._note(start, BLOCK)
        elif self._parent.name not in LOOSE:
            self._parent.solid = False
        self._ask(start)
        end = self._attributes(after)
        if self._text[end - 2] == "/" or name in VOID:
            self._after(name, end)
            return end
        if name in VERBATIM:
            end = self._text.index(">", self._text.index(f"</{name}", end)) + 1
            self._after(name, end)
            return end
        classes = re.search(r'class="([^"]*)"', self._text[after:end])
        words = set(re.findall(r"[\w-]+", classes[1])) if classes else set()
        preformatted = self._parent.preformatted or bool(words & self._preformatted)
        named = "icon" if name == "svg" and "icon" in words else name
        self._stack.append(Node(named, tight=bool(words & self._tight), preformatted=preformatted))
        if name == "svg" and "icon" in words:
            self._stack[-1].solid = False
        if name in BLOCKS and not self._text.startswith(f"</{name}", end):
            self._note(end, BLOCK)
        self._ask(end)
        return end

    def _close(self, name: str, start: int, end: int) -> None:
        # An empty element gets no gap inside: the white space would become its content.
        opened_here = self._text[start - 1] == ">" and self._text.rfind("<", 0, start) == self._text.rfind(
            f"<{name}", 0, start
        )
        if name in BLOCKS and not opened_here:
            self._note(start, BLOCK, closes=True)
        if not opened_here:
            self._ask(start, closes=True)
        while len(self._stack) > 1 and self._stack.pop().name not in (name, "icon" if name == "svg" else name):
            pass
        self._note(end - 1, LAST_RESORT)
        self._after(name, end)

    def _after(self, name: str, end: int) -> None:
        if name in BLOCKS:
            self._note(end, BLOCK)
        self._ask(end)

    def _attributes(self, at: int) -> int:
        """Note the gaps inside a tag and return where it ends."""
        quote, before, name = "", "<", ""
        while match := IN_TAG.match(self._text, at):
            piece, start, at = match[0], match.start(), match.end()
            if quote:
                quote = "" if piece == quote else quote
                if piece.isspace() and "\n" not in piece and name in WORDY:
                    self._gaps.append(Gap(at, WORD, len(self._stack) + 1))
            elif piece in ("'", '"'):
                quote = piece
            elif piece in (">", "/>"):
                self._note(start, LAST_RESORT)
                return at
            elif (
                piece.isspace() and "\n" not in piece and not FLOW.match(before) and not FLOW_MIDDLE.match(before)
            ) or (FLOW.match(piece) and before != "=" and not before.isspace()):
                self._gaps.append(Gap(at if piece.isspace() else start, ATTRIBUTE, len(self._stack) + 1))
            name = before if piece == "=" else name
            before = piece
        raise ValueError(f"a tag does not end: {self._text[at - 40 : at + 40]!r}")


class LineBreaker:
    """Breaks the wide lines of one template."""

    def __init__(self, text: str) -> None:
        reader = Reader(text)
        self._text = text
        self._gaps = reader.gaps()
        self._depths = reader.depths

    def broken(self) -> str:
        """Return the template with its wide lines broken."""
        lines, start = [], 0
        for line in self._text.split("\n"):
            end = start + len(line)
            indent = len(line) - len(line.lstrip())
            lines += self._pieces(start + indent, end, indent) if len(line) > WIDTH else [line]
            start = end + 1
        return "\n".join(lines)

    def _within(self, start: int, end: int) -> list[Gap]:
        return [gap for gap in self._gaps if start < gap.at < end and self._text[start : gap.at].strip()]

    def _pieces(self, start: int, end: int, indent: int) -> list[str]:
        """Break a stretch at its outermost block gaps; break pieces that are still too wide again."""
        words = self._text[start:end].strip()
        if indent + len(words) <= WIDTH:
            return [" " * indent + words] if words else []
        blocks = [gap for gap in self._within(start, end) if gap.kind == BLOCK and self._text[gap.at : end].strip()]
        if not blocks:
            return self._filled(start, end, indent)
        outer = min(gap.depth for gap in blocks)
        cuts = [gap for gap in blocks if gap.depth == outer]
        base = self._depths.get(start, outer)
        made: list[str] = []
        begin, pad = start, indent
        for cut in cuts:
            made += self._pieces(begin, cut.at, pad)
            begin = cut.at
            closes = self._depths.get(begin, cut.depth) < cut.depth
            pad = max(0, indent + 2 * (cut.depth - closes - base))
        return made + self._pieces(begin, end, pad)

    def _filled(self, start: int, end: int, indent: int) -> list[str]:
        """Break a stretch of inline markup as late as it fits, at outer gaps before inner ones."""
        made: list[str] = []
        begin, pad = start, indent
        while True:
            begin += len(self._text[begin:end]) - len(self._text[begin:end].lstrip())
            words = self._text[begin:end].rstrip()
            ahead = self._within(begin, end)
            if pad + len(words) <= WIDTH or not ahead:
                return [*made, " " * pad + words] if words else made
            fitting = [gap for gap in ahead if pad + len(self._text[begin : gap.at].rstrip()) <= WIDTH]
            outer = min((gap.depth for gap in fitting), default=0)
            cut = max(
                fitting, key=lambda gap: gap.at - begin - 12 * (gap.depth - outer) - COST[gap.kind], default=ahead[0]
            )
            made.append(" " * pad + self._text[begin : cut.at].rstrip())
            begin, pad = cut.at, indent + (4 if cut.kind in (ATTRIBUTE, WORD, LAST_RESORT) else 2)


def broken(text: str) -> str:
    """Return a template with its wide lines broken, as far as possible."""
    return LineBreaker(text).broken()


def main(arguments: list[str]) -> int:
    """Break the wide lines of the templates; with --check only report them. Returns the exit status."""
    check = "--check" in arguments
    files = [Path(name) for name in arguments if name != "--check"] or sorted((ROOT / "templates").rglob("*.html"))
    wide = 0
    for path in files:
        text = path.read_text()
        result = text if check else broken(text)
        if result != text:
            path.write_text(result)
        for number, line in enumerate(result.splitlines(), 1):
            if len(line) > WIDTH:
                wide += 1
                sys.stdout.write(f"{path}:{number}: {len(line)} columns\n")
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
