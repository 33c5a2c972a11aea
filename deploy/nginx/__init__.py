"""nginx: its configuration, its script, and the agent beside it (`python -m deploy.nginx`)."""
