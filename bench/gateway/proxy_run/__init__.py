"""The parts of bench.gateway.proxy: immediate engines, nginx in front of them, and one client's round trips."""
