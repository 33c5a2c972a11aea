"""Recorded traffic: a ring of segments that always runs, and recordings cut from it or uploaded."""
