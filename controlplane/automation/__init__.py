"""What automation jobs share: what they see, when they may act, and how a round is stored once."""
