"""Corrections of one typing error per word: a wrong, missing, or extra letter, or two swapped ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product

MIN_LETTERS = 4
"""Shorter words are close to too many others."""
MAX_VARIATIONS = 6


def corrections(words: str, known: Iterable[str]) -> Iterator[str]:
    """Yield the words with their misspelled ones replaced by close known ones; nothing if one has no close word."""
    vocabulary = sorted({word.lower() for word in known})
    choices = [_choices(typed, vocabulary) for typed in words.lower().split()]
    changed = (" ".join(choice) for choice in product(*choices))
    yield from islice((other for other in changed if other != words.lower()), MAX_VARIATIONS)


def _choices(typed: str, vocabulary: list[str]) -> list[str]:
    if len(typed) < MIN_LETTERS or any(typed in word for word in vocabulary):
        return [typed]
    # The first letter is rarely wrong, and without it too many words are close.
    firsts = {typed[0], typed[1]}
    close = [word for word in vocabulary if word[0] in firsts and starts_misspelled(typed, word)]
    return sorted(close, key=lambda word: (word[0] != typed[0], abs(len(word) - len(typed)), word))


def starts_misspelled(typed: str, word: str) -> bool:
    """Return whether the typed letters are the start of the word with one error."""
    same = next((at for at, (a, b) in enumerate(zip(typed, word, strict=False)) if a != b), min(len(typed), len(word)))
    wrong, right = typed[same:], word[same:]
    missing = right[1:].startswith(wrong)
    extra = right.startswith(wrong[1:])
    replaced = right[1:].startswith(wrong[1:])
    swapped = wrong[:2] == right[1::-1] and right[2:].startswith(wrong[2:])
    return missing or extra or replaced or swapped
