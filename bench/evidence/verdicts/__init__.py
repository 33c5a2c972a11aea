"""The conditions of each verdict, paper by paper; chapters/verdicts.md has the text of the claims."""
