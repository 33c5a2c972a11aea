"""The processes of one installation: server, supervisor and its children, locks, embedded Celery."""
