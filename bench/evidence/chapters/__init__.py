"""The chapters of docs/evidence.md; each returns Markdown made of results."""
