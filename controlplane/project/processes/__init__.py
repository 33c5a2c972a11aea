"""The processes of one installation: server, supervisor and child processes, locks, and embedded Celery."""
