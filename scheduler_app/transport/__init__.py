"""A Kombu transport on PostgreSQL: `pgq+postgresql://user:password@host:port/database`.

Durable queues, exchanges (direct, topic, fanout), leases, delivery limits and dead-lettering in five ordinary tables;
LISTEN/NOTIFY wakes consumers, polling is the fallback. Importing this package registers the alias; it needs neither
Django nor a database to be set up.
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

from scheduler_app.transport.errors import LeaseLost, TablesMissing, UnroutableMessage

__all__ = ["ALIAS", "LeaseLost", "TablesMissing", "UnroutableMessage", "register"]

ALIAS = "pgq"


def register() -> None:
    """Make `pgq+postgresql://…` a broker URL that Kombu knows. Calling it again changes nothing."""
    TRANSPORT_ALIASES[ALIAS] = "scheduler_app.transport.transport:Transport"


register()
