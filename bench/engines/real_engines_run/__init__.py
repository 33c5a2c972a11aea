"""Parts of bench.engines.real_engines: workloads, routers, and the client that sends and times requests."""
