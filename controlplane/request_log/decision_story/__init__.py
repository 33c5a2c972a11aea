"""One recorded decision in words: what was found, why, what happened, what to do, and how certain it was."""
