"""One run of a policy over a workload, with its report, goodput search, and what-if."""
