"""One run of a policy over a workload, its report, goodput search and what-if."""
