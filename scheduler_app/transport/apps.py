"""The Django app that owns the transport's tables."""

from __future__ import annotations

from django.apps import AppConfig

from scheduler_app.transport import register


class TransportConfig(AppConfig):
    name = "scheduler_app.transport"
    label = "everyslot_transport"
    verbose_name = "PostgreSQL message transport"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register()
