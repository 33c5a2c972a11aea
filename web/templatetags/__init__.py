"""Template filters and tags that write numbers and times as words."""
