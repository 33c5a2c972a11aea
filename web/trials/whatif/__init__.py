"""The pages of what-ifs."""
