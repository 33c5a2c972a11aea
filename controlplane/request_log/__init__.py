"""What was decided about requests, and recordings of traffic."""
