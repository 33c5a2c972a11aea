"""Recorded decisions about requests, and recordings of traffic."""
