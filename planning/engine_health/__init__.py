"""Which engines are sick, judged by progress."""
