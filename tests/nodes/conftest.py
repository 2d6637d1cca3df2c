"""pytest-celery's own fixtures over native processes. Its plugin stays off elsewhere (`-p no:celery`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import Celery
from pytest_celery import CeleryTestBackend, CeleryTestBroker, CeleryTestWorker
from pytest_celery.fixtures.backend import celery_backend_cluster, celery_backend_cluster_config
from pytest_celery.fixtures.broker import celery_broker_cluster, celery_broker_cluster_config
from pytest_celery.fixtures.setup import celery_setup, celery_setup_cls, celery_setup_config, celery_setup_name
from pytest_celery.fixtures.worker import celery_worker_cluster, celery_worker_cluster_config

from config import app
from scheduler_app.broker import publisher as publishing
from scheduler_app.broker.publisher import Publisher
from scheduler_app.models import Term
from tests.support.brokers import broker_url, database_url
from tests.support.nodes import Elsewhere, NativeWorker
from tests.support.programs import Programs, programs

app.set_current()  # pytest-celery makes an application of its own the current one when it is imported

__all__ = [
    "celery_backend_cluster",
    "celery_backend_cluster_config",
    "celery_broker_cluster",
    "celery_broker_cluster_config",
    "celery_setup",
    "celery_setup_cls",
    "celery_setup_config",
    "celery_setup_name",
    "celery_worker_cluster",
    "celery_worker_cluster_config",
]


@pytest.fixture
def run(transactional_db: None) -> Iterator[Programs]:
    Term.objects.all().delete()
    with programs("rabbitmq") as started:
        yield started
    Term.objects.all().delete()


@pytest.fixture
def celery_broker(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[CeleryTestBroker]:
    url = broker_url("rabbitmq")
    publisher = Publisher(url)
    monkeypatch.setattr(publishing, "_publisher", publisher)
    yield CeleryTestBroker(Elsewhere("rabbitmq", url), None)
    publisher.close()


@pytest.fixture
def celery_backend(transactional_db: None) -> CeleryTestBackend:
    """The database: results are read from the run's own row."""
    return CeleryTestBackend(Elsewhere("postgres", database_url()), None)


@pytest.fixture
def celery_worker(celery_broker: CeleryTestBroker, run: Programs) -> Iterator[CeleryTestWorker]:
    container = NativeWorker(run, "node")
    container.ready()
    worker = CeleryTestWorker(container, app)
    yield worker
    worker.teardown()


@pytest.fixture
def celery_setup_app() -> Celery:
    """The project's own application, as every caller has it."""
    return app
