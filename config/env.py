"""Everything the environment may say, read once into one frozen object.

Each variable may also be given as `NAME_FILE`, a file that holds the value (a mounted secret). All faults are
reported together, each with a hint, so that a wrong deployment is mended in one go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

# What to write instead, one for each variable. Every example after "e.g." can be used as it stands.
HINTS = {
    "DATABASE_URL": "e.g. postgresql://user:password@host:5432/name (PostgreSQL 15 to 18)",
    "BROKER_URL": "e.g. amqp://user:password@host:5672//, or leave it out to let PostgreSQL carry the hints",
    "REDIS_URL": "e.g. redis://host:6379/0, or leave it out: the term row alone then elects the leader",
    "DEBUG": "true or false",
    "SECRET_KEY": 'python -c "import secrets; print(secrets.token_urlsafe(50))"',
    "ALLOWED_HOSTS": "host names, separated by commas, e.g. jobs.example.org,localhost",
    "EVERYSLOT_QUEUES": "names of queues, separated by commas, e.g. default,fast,slow",
    "EVERYSLOT_LEASE": "seconds above 0, at most a day, e.g. 30",
    "EVERYSLOT_HEARTBEAT": "seconds above 0, at most a third of EVERYSLOT_LEASE, e.g. 10",
    "EVERYSLOT_TERM": "seconds above 0, at least three times EVERYSLOT_LOOP, e.g. 5",
    "EVERYSLOT_LOOP": "seconds above 0, at most 60, e.g. 1",
    "EVERYSLOT_DISPATCH_WINDOW": "how many runs, 1 to 1000000, e.g. 10000",
    "EVERYSLOT_DISPATCH_TIMEOUT": "seconds above 0, at most a day, e.g. 60",
    "EVERYSLOT_PREFETCH": "messages per pool process, 1 to 1000, e.g. 4",
    "EVERYSLOT_CANCEL_GRACE": "seconds, 0 or more, at most a day, e.g. 30",
    "EVERYSLOT_UNKNOWN_TASK_WAIT": "seconds, 0 or more, at most a day, e.g. 1800",
    "EVERYSLOT_STOP_GRACE": "seconds above 0, at most a day, as your platform grants them, e.g. 60",
    "EVERYSLOT_SOFT_SHUTDOWN": "seconds, 0 or more and below EVERYSLOT_STOP_GRACE, e.g. 0",
    "EVERYSLOT_CONSUMER_TIMEOUT": "seconds above the longest time limit, at most a year, e.g. 7200",
    "EVERYSLOT_SESSION_LOCKS": "true, or false behind a transaction pooler, e.g. true",
    "EVERYSLOT_LOG_LEVEL": "DEBUG, INFO, WARNING or ERROR, e.g. INFO",
    "EVERYSLOT_MEDIA_ROOT": "a folder that web and workers share, e.g. /srv/media",
    "EVERYSLOT_COMMANDS": "names of Django commands, separated by commas, e.g. clearsessions",
    "EVERYSLOT_HTTP_ALLOW": "host:port of internal targets, separated by commas, e.g. intranet:8080",
    "EVERYSLOT_EMAIL_URL": "e.g. smtp://user:password@host:587?from=jobs@example.org, or smtps:// for TLS at once",
    "EVERYSLOT_TASK_MODULES": "names of Python modules, separated by commas, e.g. tasks",
}
BROKER_SCHEMES = ("amqp", "amqps", "pyamqp", "pgq+postgresql", "pgq+postgres")
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis-sentinel")
DAY, YEAR = 86_400, 366 * 86_400

# Without an end, a typing error would be a lease that never runs out, or a time that PostgreSQL cannot hold.
Seconds = Annotated[float, Field(gt=0, le=DAY, allow_inf_nan=False)]


class EnvironmentFault(Exception):
    """The environment is unusable; `faults` has one line per fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("the environment is not usable:\n" + "\n".join(f"  - {fault}" for fault in faults))


class Env(BaseModel):
    """The environment, checked. Durations are seconds, sizes are counts."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    DATABASE_URL: str
    BROKER_URL: str = ""
    REDIS_URL: str = ""
    DEBUG: bool = False
    SECRET_KEY: Annotated[str, Field(validate_default=True)] = ""  # after DEBUG, which its rule reads
    ALLOWED_HOSTS: str = "localhost,127.0.0.1,[::1]"

    EVERYSLOT_QUEUES: str = "default,fast,slow"
    EVERYSLOT_LEASE: Seconds = 30
    EVERYSLOT_HEARTBEAT: Seconds = 10
    EVERYSLOT_TERM: Seconds = 5
    EVERYSLOT_LOOP: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 1
    EVERYSLOT_DISPATCH_WINDOW: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    EVERYSLOT_DISPATCH_TIMEOUT: Seconds = 60
    EVERYSLOT_PREFETCH: Annotated[int, Field(ge=1, le=1000)] = 4
    EVERYSLOT_CANCEL_GRACE: Annotated[float, Field(ge=0, le=DAY, allow_inf_nan=False)] = 30
    EVERYSLOT_UNKNOWN_TASK_WAIT: Annotated[float, Field(ge=0, le=DAY, allow_inf_nan=False)] = 1800
    EVERYSLOT_STOP_GRACE: Seconds = 60
    EVERYSLOT_SOFT_SHUTDOWN: Annotated[float, Field(ge=0, le=DAY, allow_inf_nan=False)] = 0
    EVERYSLOT_CONSUMER_TIMEOUT: Annotated[float, Field(gt=0, le=YEAR, allow_inf_nan=False)] = 1800
    EVERYSLOT_SESSION_LOCKS: bool = True
    EVERYSLOT_LOG_LEVEL: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    EVERYSLOT_MEDIA_ROOT: str = ""
    EVERYSLOT_COMMANDS: str = "clearsessions"
    EVERYSLOT_HTTP_ALLOW: str = ""
    EVERYSLOT_EMAIL_URL: str = ""
    EVERYSLOT_TASK_MODULES: str = "tasks"

    @field_validator("DATABASE_URL")
    @classmethod
    def _database(cls, value: str) -> str:
        return _url(value, ("postgresql", "postgres"))

    @field_validator("BROKER_URL")
    @classmethod
    def _broker(cls, value: str) -> str:
        return _url(value, BROKER_SCHEMES) if value else value

    @field_validator("REDIS_URL")
    @classmethod
    def _redis(cls, value: str) -> str:
        return _url(value, REDIS_SCHEMES) if value else value

    @field_validator("EVERYSLOT_QUEUES")
    @classmethod
    def _queues(cls, value: str) -> str:
        names = _split(value)
        if "default" not in names or len(set(names)) != len(names):
            raise ValueError("names must differ and one of them must be 'default'")
        return value

    @field_validator("SECRET_KEY")
    @classmethod
    def _secret(cls, value: str, info: ValidationInfo) -> str:
        if not value.strip() and not info.data.get("DEBUG", False):  # a bad DEBUG is not among the data
            raise ValueError("is missing (only DEBUG=true goes without)")
        return value

    @field_validator("EVERYSLOT_EMAIL_URL")
    @classmethod
    def _mail(cls, value: str) -> str:
        return _mail_url(value) if value else value

    @property
    def allowed_hosts(self) -> list[str]:
        return _split(self.ALLOWED_HOSTS)

    @property
    def queues(self) -> list[str]:
        return _split(self.EVERYSLOT_QUEUES)


def read_env(environ: Mapping[str, str] = os.environ) -> Env:
    """Read and check the environment; raises EnvironmentFault with every fault at once."""
    values, unread = _with_files(environ)
    faults = list(unread.values())
    try:
        env = Env.model_validate(values)
    except ValidationError as error:
        bad = [(str(item["loc"][0]), item["msg"]) for item in error.errors(include_url=False)]
        faults += [_line(name, message) for name, message in bad if name not in unread]
        raise EnvironmentFault(faults) from None
    if faults:
        raise EnvironmentFault(faults)
    return env


def _with_files(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The values, and for each variable that has none because of its file the line that says so."""
    values: dict[str, str] = {}
    unread: dict[str, str] = {}
    for name in Env.model_fields:
        path = environ.get(f"{name}_FILE")
        if path and environ.get(name):
            unread[name] = f"{name}: given twice, as {name} and as {name}_FILE - keep one"
        elif path:
            try:
                values[name] = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                mend = f"let it hold the value of {name} as text, and this user read it"
                unread[name] = f"{name}_FILE: cannot be read ({error}) - {mend}"
        elif environ.get(name):
            values[name] = environ[name]
    return values, unread


def _line(name: str, message: str) -> str:
    said = "is missing" if message == "Field required" else message.removeprefix("Value error, ")
    return f"{name}: {said} - {HINTS[name]}"


def _url(value: str, schemes: tuple[str, ...]) -> str:
    _parts(value, schemes)
    return value


def _mail_url(value: str) -> str:
    parts = _parts(value, ("smtp", "smtps"))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not parts.hostname:
        raise ValueError("names no host")
    if unknown := options.keys() - {"from"}:
        raise ValueError(f"the only option is from=, not {', '.join(sorted(unknown))}")
    if "@" not in options.get("from", "@"):
        raise ValueError("what stands after from= is no address")
    return value


def _parts(value: str, schemes: tuple[str, ...]) -> SplitResult:
    """The parts of a URL. What is raised never quotes the value, which may hold a password."""
    try:
        parts = urlsplit(value)
    except ValueError:
        raise ValueError("the part before the path is no user, password, host and port") from None
    if parts.scheme not in schemes:
        raise ValueError(f"must start with one of {', '.join(s + '://' for s in schemes)}")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("the port is not a number from 0 to 65535") from None
    return parts


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]
