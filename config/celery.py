"""The Celery application; without `DJANGO_SETTINGS_MODULE` Celery's Django fixup would stay off."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from celery import Celery

from scheduler_app.transport import register

register()
app = Celery("everyslot")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
