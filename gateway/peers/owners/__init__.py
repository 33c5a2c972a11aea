"""The queue owner: one gateway per pool decides for all gateways of a region."""
