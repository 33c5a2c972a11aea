"""The chapters of docs/evidence.md: NAME.md has the text, NAME.py its figures and the pictures."""
