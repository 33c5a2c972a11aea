"""The pages of shadows."""
