"""The prefix index: which engines hold which blocks."""
