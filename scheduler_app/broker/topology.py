"""The queues at the broker, in one place: what the worker declares is what the publisher sends to.

Every work queue is a quorum queue (RabbitMQ) with a dead-letter exchange. Dead-lettering is at-least-once, which
RabbitMQ grants only together with `reject-publish` overflow (Quorum queues, "At-least-once dead lettering"). The
broker's delivery limit lies far above the row's `max_attempts`: the row counts, the broker only stops a storm.
Pure: usable by settings before Django is set up.
"""

from __future__ import annotations

from collections.abc import Sequence

from kombu import Exchange, Queue

EXCHANGE = "everyslot"
DEAD_EXCHANGE = "everyslot.dead"
DEAD_QUEUE = "everyslot.dead"
DELIVERY_LIMIT = 100

exchange = Exchange(EXCHANGE, type="direct", durable=True)
dead_exchange = Exchange(DEAD_EXCHANGE, type="direct", durable=True)

WORK_ARGUMENTS: dict[str, object] = {
    "x-queue-type": "quorum",
    "x-delivery-limit": DELIVERY_LIMIT,
    "x-dead-letter-exchange": DEAD_EXCHANGE,
    "x-dead-letter-routing-key": DEAD_QUEUE,
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
DEAD_ARGUMENTS: dict[str, object] = {"x-queue-type": "quorum"}


def work_queue(name: str) -> Queue:
    """The queue that carries the hints of the runs of queue `name`; its routing key is its name."""
    return Queue(name, exchange, routing_key=name, durable=True, queue_arguments=dict(WORK_ARGUMENTS))


def dead_queue() -> Queue:
    """Where the broker puts what a worker rejected or what went over the delivery limit."""
    return Queue(DEAD_QUEUE, dead_exchange, routing_key=DEAD_QUEUE, durable=True, queue_arguments=dict(DEAD_ARGUMENTS))


def celery_queues(names: Sequence[str]) -> list[Queue]:
    """The value of Celery's `task_queues`."""
    return [work_queue(name) for name in names]
