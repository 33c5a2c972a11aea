"""Parts of bench.engines.real_engines: what is asked, and how it is asked and timed."""
