"""Django and Celery settings, all derived from the environment (config/env.py)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from config.env import EnvironmentFault, read_env
from scheduler_app.broker.topology import celery_queues

try:
    ENV = read_env()
except EnvironmentFault as fault:
    sys.exit(str(fault))  # whoever deploys reads the list, not the way through Django and Celery that led here
BASE_DIR = Path(__file__).resolve().parent.parent


def _database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "postgres",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": dict(parse_qsl(parts.query)),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": not ENV.EVERYSLOT_SESSION_LOCKS,
    }


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _mail(url: str) -> dict[str, Any]:
    """`smtp://user:password@host:587`, STARTTLS where a user is given; `smtps://` for TLS at once; `?from=address`."""
    parts = urlsplit(url)
    secure = parts.scheme == "smtps"
    return {
        "host": parts.hostname or "localhost",
        "port": parts.port or (465 if secure else 587 if parts.username else 25),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "ssl": secure,
        "tls": not secure and bool(parts.username),
        "from": dict(parse_qsl(parts.query)).get("from", "everyslot@localhost"),
    }


SECRET_KEY = ENV.SECRET_KEY or "for-debug-only-" + "0" * 50
DEBUG = ENV.DEBUG
ALLOWED_HOSTS = ENV.allowed_hosts
DATABASES = {"default": _database(ENV.DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_results",
    "scheduler_app.transport",
    "scheduler_app",
    "tasks",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
LANGUAGE_CODE = "en-us"
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "static-collected"
MEDIA_ROOT = Path(ENV.EVERYSLOT_MEDIA_ROOT) if ENV.EVERYSLOT_MEDIA_ROOT else BASE_DIR / "media"
MEDIA_URL = "media/"
MAIL = _mail(ENV.EVERYSLOT_EMAIL_URL)
EMAIL_BACKEND = (
    "django.core.mail.backends.smtp.EmailBackend"
    if ENV.EVERYSLOT_EMAIL_URL or not DEBUG
    else "django.core.mail.backends.console.EmailBackend"
)
EMAIL_HOST, EMAIL_PORT = MAIL["host"], MAIL["port"]
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = MAIL["user"], MAIL["password"]
EMAIL_USE_SSL, EMAIL_USE_TLS = MAIL["ssl"], MAIL["tls"]
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = MAIL["from"]
AUTH_PASSWORD_VALIDATORS = [{"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"}]

LOGIN_REDIRECT_URL = "/admin/"
UNFOLD = {
    "SITE_TITLE": "Everyslot",
    "SITE_HEADER": "Everyslot",
    "SITE_SUBHEADER": "Every slot gets its run",
    "SITE_SYMBOL": "event_repeat",
    "SHOW_VIEW_ON_SITE": False,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "scheduler_app.admin.look.favicon"}],
    "SIDEBAR": {"show_search": True, "navigation": "scheduler_app.admin.look.navigation"},
}

SESSION_COOKIE_SECURE = not DEBUG
CSRF_COOKIE_SECURE = not DEBUG
SECURE_SSL_REDIRECT = not DEBUG
SECURE_HSTS_SECONDS = 0 if DEBUG else 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = not DEBUG
SECURE_HSTS_PRELOAD = not DEBUG
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

EVERYSLOT = {
    "queues": ENV.queues,
    "lease": ENV.EVERYSLOT_LEASE,
    "heartbeat": ENV.EVERYSLOT_HEARTBEAT,
    "term": ENV.EVERYSLOT_TERM,
    "loop": ENV.EVERYSLOT_LOOP,
    "dispatch_window": ENV.EVERYSLOT_DISPATCH_WINDOW,
    "dispatch_timeout": ENV.EVERYSLOT_DISPATCH_TIMEOUT,
    "cancel_grace": ENV.EVERYSLOT_CANCEL_GRACE,
    "unknown_task_wait": ENV.EVERYSLOT_UNKNOWN_TASK_WAIT,
    "stop_grace": ENV.EVERYSLOT_STOP_GRACE,
    "soft_shutdown": ENV.EVERYSLOT_SOFT_SHUTDOWN,
    "consumer_timeout": ENV.EVERYSLOT_CONSUMER_TIMEOUT,
    "session_locks": ENV.EVERYSLOT_SESSION_LOCKS,
    "redis_url": ENV.REDIS_URL,
}

EVERYSLOT_COMMANDS = _listed(ENV.EVERYSLOT_COMMANDS)
EVERYSLOT_HTTP_ALLOW = _listed(ENV.EVERYSLOT_HTTP_ALLOW.lower())

CELERY_BROKER_URL = ENV.BROKER_URL or f"pgq+{ENV.DATABASE_URL}"
CELERY_RESULT_BACKEND = "scheduler_app.worker.results:RunBackend"
CELERY_RESULT_EXTENDED = True
CELERY_IMPORTS = _listed(ENV.EVERYSLOT_TASK_MODULES)  # besides `tasks` of every installed app
CELERY_TASK_CLS = "celery.contrib.django.task:DjangoTask"
CELERY_TASK_QUEUES = celery_queues(ENV.queues)
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_DEFAULT_EXCHANGE = "everyslot"
CELERY_TASK_DEFAULT_ROUTING_KEY = "default"
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False
CELERY_TASK_TRACK_STARTED = False
CELERY_TASK_TIME_LIMIT = 900
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_DB_REUSE_MAX = 10_000
CELERY_WORKER_CONSUMER = "scheduler_app.worker.consumer:DurableConsumer"
CELERY_WORKER_PREFETCH_MULTIPLIER = ENV.EVERYSLOT_PREFETCH
CELERY_WORKER_HIJACK_ROOT_LOGGER = True
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = ENV.EVERYSLOT_SOFT_SHUTDOWN
CELERY_WORKER_ENABLE_REMOTE_CONTROL = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_BROKER_CONNECTION_TIMEOUT = 2
CELERY_BEAT_SCHEDULER = "scheduler_app.beat.scheduler:EveryslotScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = ENV.EVERYSLOT_LOOP
CELERY_BEAT_SCHEDULE: dict[str, object] = {}
CELERY_REDBEAT_REDIS_URL = ENV.REDIS_URL or None
CELERY_REDBEAT_LOCK_TIMEOUT = ENV.EVERYSLOT_TERM
CELERY_REDBEAT_REDIS_OPTIONS = {
    "socket_timeout": 1.0,
    "socket_connect_timeout": 1.0,
    "retry_on_timeout": False,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": ENV.EVERYSLOT_LOG_LEVEL},
}
