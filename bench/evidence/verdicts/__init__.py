"""What each verdict depends on, paper by paper; the claims' words stand in chapters/verdicts.md."""
