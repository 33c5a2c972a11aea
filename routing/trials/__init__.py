"""Other policies beside the live one: arms of a canary, shadows."""
