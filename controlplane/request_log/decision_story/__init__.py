"""One recorded decision in words: its inputs, its reasons, its outcome, its remedy, and its certainty."""
