"""Remove each part of each requirement's mechanism, and check whether the requirement's tests fail."""
