"""One pool at work: its router in real time, and what it keeps of its requests."""
