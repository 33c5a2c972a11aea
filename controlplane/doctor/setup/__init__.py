"""Questions about what is installed: settings, secrets, database, Redis, the console."""
