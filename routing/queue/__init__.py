"""Requests that wait at the gateway: queues, admission, dispatch limits, fairness."""
