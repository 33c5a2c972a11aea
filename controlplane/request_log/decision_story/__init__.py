"""One recorded decision told in words: what was found, why, what happened, what to do, how firm it was."""
