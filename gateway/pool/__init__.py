"""One pool at work: its router in real time, and the state of its requests."""
