"""One running pool: its router in real time, and the state of its requests."""
