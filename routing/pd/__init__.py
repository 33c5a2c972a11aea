"""Prefill and decode on two engines: the choice of the decode engine, and its ledger."""
