"""The composition root: settings, URLs, ASGI, Celery, and the processes of one installation."""
