"""nginx: the configuration, its script, and the agent next to it (`python -m deploy.nginx`)."""
