"""The parts of bench.gateway.proxy: engines that answer at once, nginx before them, and one client's round trips."""
