"""The chapters of docs/evidence.md: NAME.md has the words, NAME.py the figures in them and the pictures."""
