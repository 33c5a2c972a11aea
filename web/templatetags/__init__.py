"""Template filters and tags: words for numbers and times."""
