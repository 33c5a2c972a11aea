"""The conditions of each verdict, paper by paper. chapters/verdicts.md contains the text of the claims."""
