"""Discovery: engines listed by a file, DNS, or Kubernetes join and leave a pool automatically."""
