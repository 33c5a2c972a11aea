"""Other policies that run next to the live one: arms of a canary, shadows."""
