"""What this transport raises besides PostgreSQL's own errors."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from kombu.exceptions import KombuError


class UnroutableMessage(KombuError):
    """A message that had to reach a queue reached none; all routable messages of the same call are committed.

    `unroutable` holds (index in the call, exchange, routing key) of each message that was not stored.
    """

    code = "transport.unroutable"

    def __init__(self, unroutable: Sequence[tuple[int, str, str]]) -> None:
        self.unroutable = list(unroutable)
        index, exchange, routing_key = self.unroutable[0]
        super().__init__(
            f"{len(self.unroutable)} message(s) reached no queue; the first is number {index}, "
            f"exchange {exchange!r}, routing key {routing_key!r}"
        )


class LeaseLost(psycopg.OperationalError):
    """This consumer was silent for longer than its lease and its messages went to others: connect anew."""

    code = "transport.lease_lost"


class TablesMissing(psycopg.OperationalError):
    """The database has no transport tables yet. A connection error, so that a worker waits for the migration."""

    code = "transport.tables_missing"
