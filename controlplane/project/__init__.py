"""The composition root: settings, addresses, ASGI, Celery, and the processes of one installation."""
