"""The commands export, diff, and apply. They need no Django: pipelines run them far from the server."""
