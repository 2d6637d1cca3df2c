"""Where Celery's autodiscovery finds our tasks: each room of this package is imported once."""

from tasks import examples, http, mail, management, media, reports

__all__ = ["examples", "http", "mail", "management", "media", "reports"]
