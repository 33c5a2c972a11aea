"""The chapters of docs/evidence.md: NAME.md contains the text, NAME.py computes its figures and draws its pictures."""
