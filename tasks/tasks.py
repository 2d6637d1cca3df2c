"""Where Celery's autodiscovery finds our tasks: each room of this package is imported once."""

from tasks import examples

__all__ = ["examples"]
