"""Discovery: engines that a file, DNS or Kubernetes lists come and go in a pool without a click."""
