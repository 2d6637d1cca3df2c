"""Everything the environment may say, read once into one frozen object.

Each variable may also be given as `NAME_FILE`, a file that holds the value (a mounted secret). All faults are
reported together, each with a hint, so that a wrong deployment is mended in one go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

HINTS = {
    "DATABASE_URL": "e.g. postgresql://user:password@host:5432/name (PostgreSQL 15 to 18)",
    "BROKER_URL": "e.g. amqp://user:password@host:5672//, or leave it out to let PostgreSQL carry the hints",
    "REDIS_URL": "e.g. redis://host:6379/0, or leave it out: the term row alone then elects the leader",
    "SECRET_KEY": 'python -c "import secrets; print(secrets.token_urlsafe(50))"',
    "DEBUG": "true or false",
    "ALLOWED_HOSTS": "host names, separated by commas",
}
BROKER_SCHEMES = ("amqp", "amqps", "pyamqp", "pgq+postgresql", "pgq+postgres")
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis-sentinel")


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
    SECRET_KEY: str = ""
    DEBUG: bool = False
    ALLOWED_HOSTS: str = "localhost,127.0.0.1,[::1]"

    EVERYSLOT_QUEUES: str = "default,fast,slow"
    EVERYSLOT_LEASE: Annotated[float, Field(gt=0)] = 30
    EVERYSLOT_HEARTBEAT: Annotated[float, Field(gt=0)] = 10
    EVERYSLOT_TERM: Annotated[float, Field(gt=0)] = 5
    EVERYSLOT_LOOP: Annotated[float, Field(gt=0, le=60)] = 1
    EVERYSLOT_DISPATCH_WINDOW: Annotated[int, Field(ge=1)] = 10_000
    EVERYSLOT_DISPATCH_TIMEOUT: Annotated[float, Field(gt=0)] = 60
    EVERYSLOT_PREFETCH: Annotated[int, Field(ge=1, le=1000)] = 4
    EVERYSLOT_STOP_GRACE: Annotated[float, Field(gt=0)] = 60
    EVERYSLOT_SOFT_SHUTDOWN: Annotated[float, Field(ge=0)] = 0
    EVERYSLOT_CONSUMER_TIMEOUT: Annotated[float, Field(gt=0)] = 7200
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

    @model_validator(mode="after")
    def _secret(self) -> Env:
        if not self.SECRET_KEY and not self.DEBUG:
            raise ValueError("SECRET_KEY: is missing (only DEBUG=true goes without)")
        return self

    @property
    def allowed_hosts(self) -> list[str]:
        return _split(self.ALLOWED_HOSTS)

    @property
    def queues(self) -> list[str]:
        return _split(self.EVERYSLOT_QUEUES)


def read_env(environ: Mapping[str, str] = os.environ) -> Env:
    """Read and check the environment; raises EnvironmentFault with every fault at once."""
    values, faults = _with_files(environ)
    try:
        env = Env.model_validate(values)
    except ValidationError as error:
        faults += [_line(item["loc"], item["msg"]) for item in error.errors(include_url=False)]
        raise EnvironmentFault(faults) from None
    if faults:
        raise EnvironmentFault(faults)
    return env


def _with_files(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    values: dict[str, str] = {}
    faults: list[str] = []
    for name in Env.model_fields:
        path = environ.get(f"{name}_FILE")
        if path and environ.get(name):
            faults.append(f"{name}: given twice, as {name} and as {name}_FILE; keep one")
        elif path:
            try:
                values[name] = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                faults.append(f"{name}_FILE: cannot be read ({error})")
        elif environ.get(name):
            values[name] = environ[name]
    return values, faults


def _line(loc: tuple[int | str, ...], message: str) -> str:
    name = str(loc[0]) if loc else ""
    text = message.removeprefix("Value error, ")
    if not name and ":" in text:
        name, _, text = (part.strip() for part in text.partition(":"))
    hint = HINTS.get(name)
    return f"{name}: {text}" + (f" - {hint}" if hint else "")


def _url(value: str, schemes: tuple[str, ...]) -> str:
    parts = urlsplit(value)
    if parts.scheme not in schemes:
        raise ValueError(f"must start with one of {', '.join(s + '://' for s in schemes)}")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("the port is not a number from 0 to 65535") from None
    return value


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]
