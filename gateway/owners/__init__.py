"""One gateway per pool decides for all of a region: its queue owner."""
