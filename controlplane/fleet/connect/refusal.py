"""Why an engine is not connected, and what to do about it."""

from __future__ import annotations


class ConnectRefusedError(Exception):
    """Nothing was changed. `remedy` says what to do; `start_line` is a whole command to start the engine with.

    `estimable`: a new pool may route to it by estimated hits.
    """

    def __init__(self, sentence: str, remedy: str, *, start_line: str = "", estimable: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.remedy = remedy
        self.start_line = start_line
        self.estimable = estimable
