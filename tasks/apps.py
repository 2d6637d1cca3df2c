"""The tasks that come with Everyslot, as a Django app so that Celery finds them."""

from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "tasks"
    label = "everyslot_tasks"
    verbose_name = "Everyslot tasks"
