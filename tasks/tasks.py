"""Where Celery's autodiscovery finds our tasks: each room of this package is imported once."""

from tasks import examples, reports

__all__ = ["examples", "reports"]
