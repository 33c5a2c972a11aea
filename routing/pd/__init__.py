"""Prefill and decode on two engines: the decode engine and its account."""
