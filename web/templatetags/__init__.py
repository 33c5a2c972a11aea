"""What templates may call: words for numbers and times."""
