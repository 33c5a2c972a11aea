"""HTTP, and the process that serves it."""
