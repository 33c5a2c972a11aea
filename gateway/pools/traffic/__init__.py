"""The last minutes of one pool's traffic: windows, prefixes, queues."""
