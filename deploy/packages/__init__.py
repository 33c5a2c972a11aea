"""What is installed with pip: the application, its client, and the connector for vLLM."""
