"""Proved savings: what each pool's policy saved against other routers' rules, by replaying recorded traffic daily."""
