"""System checks: rules across settings, each with an id and a hint. `manage.py check` runs those that only read
settings and tasks; `manage.py check --database default` also asks the database and Redis.

| id | rule |
|---|---|
| E001 | a heartbeat is at most a third of the lease |
| E002, E003 | RabbitMQ's consumer timeout is above every time limit of tasks, and of jobs; `long_running` ones aside |
| E004, W004 | Redis evicts no keys; it answered |
| E005 | the soft shutdown is below the stop grace |
| E006 | the term, and RedBeat's lock, last at least three loop intervals |
| E007 | Django and Celery count in UTC |
| E008 | Celery acknowledges late |
| E009, W001 | CELERY_WORKER_POOL is prefork: not gevent or eventlet; not threads or solo |
| E010 | the database is PostgreSQL |
| E011 | the modules with tasks can be imported |
| W002 | Celery keeps database connections between tasks |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, connection

from scheduler_app.conf import Conf, conf
from scheduler_app.core.limits import TIME_LIMIT_DEFAULT
from scheduler_app.core.options import TaskOptions
from scheduler_app.core.pools import objection
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.loading import import_tasks
from scheduler_app.models import Job

TAG: Final = "everyslot"
NAMED: Final = 20  # jobs that one check names
REDIS_TIMEOUT: Final = 1.0  # seconds
Messages = list[CheckMessage]
Settings = Callable[[Conf], Messages]


@register(TAG)
def check_settings(app_configs: Any = None, **kwargs: Any) -> Messages:
    """The rules that settings alone decide."""
    return [message for rule in RULES for message in rule(conf())]


@register(TAG)
def check_tasks(app_configs: Any = None, **kwargs: Any) -> Messages:
    """The time limits that tasks declare."""
    try:
        import_tasks()
    except Exception as error:
        fault = f"the modules with tasks cannot be imported: {type(error).__name__}: {error}"
        return [
            _error(
                11,
                fault,
                "Import them in a shell to see where it fails: python manage.py shell -c 'import tasks.tasks'",
            )
        ]
    return [
        fault
        for options in catalog.all_tasks()
        if not options.long_running
        for fault in _outlives(2, f"the task {options.name}", options.time_limit or TIME_LIMIT_DEFAULT)
    ]


@register(TAG, Tags.database)
def check_jobs(app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any) -> Messages:
    """The time limits of the jobs in the database."""
    if not databases or connection.alias not in databases:
        return []
    try:
        if Job._meta.db_table not in connection.introspection.table_names():
            return []  # before the first migration
        early = [options.name for options in _tasks() if options.long_running]
        late = Job.objects.live().filter(enabled=True, time_limit__gte=conf().consumer_timeout).exclude(task__in=early)
        found = list(late.order_by("name").values_list("name", "time_limit")[:NAMED])
    except DatabaseError:
        return []  # Django tells of a database that does not answer
    return [fault for name, limit in found for fault in _outlives(3, f"the job {name}", limit)]


@register(TAG, Tags.database)
def check_redis(app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any) -> Messages:
    """Redis may not throw away the leader's lock when its memory is full."""
    url = conf().redis_url
    if not databases or not url:
        return []
    import redis  # takes a tenth of a second, which no other process has to spend

    mend = "Set `maxmemory-policy noeviction` in redis.conf, or unset REDIS_URL: the term row alone then elects."
    try:
        client = redis.Redis.from_url(url, socket_timeout=REDIS_TIMEOUT, socket_connect_timeout=REDIS_TIMEOUT)
        with client:
            policy = client.info("memory").get("maxmemory_policy", "unknown")
    except (redis.RedisError, OSError, ValueError) as error:
        fault = f"Redis could not be asked for its eviction policy ({type(error).__name__})"
        return [_warning(4, fault, f"Start it or mend REDIS_URL, then check again. {mend}")]
    return [] if policy == "noeviction" else [_error(4, f"Redis evicts keys when its memory is full ({policy})", mend)]


def _tasks() -> list[TaskOptions]:
    """The durable tasks; those of modules that cannot be imported are missing, of which `check_tasks` tells."""
    with suppress(Exception):
        import_tasks()
    return catalog.all_tasks()


def _outlives(number: int, who: str, limit: int) -> Messages:
    """A run that outlives the consumer timeout loses its channel, and its worker's other messages with it."""
    broker = str(getattr(settings, "CELERY_BROKER_URL", ""))
    timeout = conf().consumer_timeout
    if limit < timeout or not broker.startswith(("amqp", "pyamqp")):
        return []
    return [
        _error(
            number,
            f"{who} may run {limit} s, but RabbitMQ closes the channel of a consumer after {timeout:g} s",
            "Declare the task with long_running=True; or lower the time limit; or set consumer_timeout (milliseconds) "
            "in rabbitmq.conf above the longest time limit, and EVERYSLOT_CONSUMER_TIMEOUT (seconds) to the same.",
        )
    ]


def _heartbeat(ours: Conf) -> Messages:
    if ours.heartbeat <= ours.lease / 3:
        return []
    fault = f"the heartbeat ({ours.heartbeat:g} s) is more than a third of the lease ({ours.lease:g} s)"
    return [
        _error(1, fault, "Lower EVERYSLOT_HEARTBEAT or raise EVERYSLOT_LEASE: two lost beats must not cost a lease.")
    ]


def _shutdown(ours: Conf) -> Messages:
    if ours.soft_shutdown < ours.stop_grace:
        return []
    fault = f"the soft shutdown ({ours.soft_shutdown:g} s) is not below the stop grace ({ours.stop_grace:g} s)"
    return [
        _error(
            5, fault, "Lower EVERYSLOT_SOFT_SHUTDOWN, or raise EVERYSLOT_STOP_GRACE and the platform's grace period."
        )
    ]


def _leader(ours: Conf) -> Messages:
    loop = float(getattr(settings, "CELERY_BEAT_MAX_LOOP_INTERVAL", ours.loop))
    lasts = {"EVERYSLOT_TERM": ours.term}
    if ours.redis_url:
        lasts["CELERY_REDBEAT_LOCK_TIMEOUT"] = float(getattr(settings, "CELERY_REDBEAT_LOCK_TIMEOUT", ours.term))
    return [
        _error(
            6,
            f"{name} ({seconds:g} s) is less than three loop intervals of beat ({loop:g} s each)",
            f"Raise {name} or lower EVERYSLOT_LOOP: one slow round must not cost the lead.",
        )
        for name, seconds in lasts.items()
        if seconds < 3 * loop
    ]


def _clocks(ours: Conf) -> Messages:
    wrong = [
        f"{name} is {value!r}"
        for name, value, wanted in (
            ("TIME_ZONE", settings.TIME_ZONE, "UTC"),
            ("USE_TZ", settings.USE_TZ, True),
            ("CELERY_TIMEZONE", getattr(settings, "CELERY_TIMEZONE", None), "UTC"),
            ("CELERY_ENABLE_UTC", getattr(settings, "CELERY_ENABLE_UTC", True), True),
        )
        if value != wanted
    ]
    hint = (
        "Set TIME_ZONE and CELERY_TIMEZONE to 'UTC', USE_TZ and CELERY_ENABLE_UTC to True; each job names its own zone."
    )
    return [_error(7, f"{fault}, but instants are kept in UTC", hint) for fault in wrong]


def _acknowledging(ours: Conf) -> Messages:
    if getattr(settings, "CELERY_TASK_ACKS_LATE", False):
        return []
    return [
        _error(8, "CELERY_TASK_ACKS_LATE is off", "Set it to True: a hint that is taken early is lost with its worker.")
    ]


def _pool(ours: Conf) -> Messages:
    """What the settings say; the worker itself says it of the option --pool (`worker/pools.py`)."""
    against = objection(str(getattr(settings, "CELERY_WORKER_POOL", "prefork")))
    if against is None:
        return []
    return [_error(9, against.fault, against.hint) if against.forbidden else _warning(1, against.fault, against.hint)]


def _database(ours: Conf) -> Messages:
    if connection.vendor == "postgresql":
        return []
    return [_error(10, f"the database is {connection.vendor}", "Use PostgreSQL 15 to 18: DATABASE_URL=postgresql://…")]


def _connections(ours: Conf) -> Messages:
    if getattr(settings, "CELERY_DB_REUSE_MAX", None):
        return []
    fault = "CELERY_DB_REUSE_MAX is not set, so Celery opens a database connection for each task"
    return [_warning(2, fault, "Set it to some thousands.")]


def _error(number: int, fault: str, hint: str) -> CheckMessage:
    return Error(fault, hint=hint, id=f"everyslot.E{number:03}")


def _warning(number: int, fault: str, hint: str) -> CheckMessage:
    return Warning(fault, hint=hint, id=f"everyslot.W{number:03}")


RULES: Final[tuple[Settings, ...]] = (
    _heartbeat, _shutdown, _leader, _clocks, _acknowledging, _pool, _database, _connections,
)  # fmt: skip
