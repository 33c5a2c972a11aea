"""Tests of the commands export, diff, and apply."""
