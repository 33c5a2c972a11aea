"""Payloads on one machine: an arena in DRAM, slot files on SSD, and the eviction order."""
