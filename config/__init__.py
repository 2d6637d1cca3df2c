"""The Django project: `celery -A config worker`, `celery -A config beat`, `manage.py`."""

from config.celery import app

__all__ = ["app"]
