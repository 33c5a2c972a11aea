"""Advice: proposals of better policies, their autopilot, and what came of them."""
