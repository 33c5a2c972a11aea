"""The pictures of docs/evidence.md as SVG files."""
