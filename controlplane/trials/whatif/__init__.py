"""What-if: runs a recording with a draft and with the version that it would replace, and compares the results."""
