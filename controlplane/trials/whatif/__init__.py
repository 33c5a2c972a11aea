"""What-if: a recording under a draft and under the version it would replace, and their differences."""
