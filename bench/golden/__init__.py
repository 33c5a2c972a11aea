"""What this program shows to the outside, in files that a change of its structure must leave as they are."""
