"""Every task we ship is worked on twice under one run id, and its effects are found once."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import BaseCommand, call_command
from PIL import Image

from scheduler_app.core.errors import GiveUp
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.loading import import_tasks
from scheduler_app.models import ProcessedStep
from scheduler_app.testing import run_as
from tasks import examples, http, management, reports
from tasks import mail as mail_tasks
from tasks import media as media_tasks
from tests.support.definitions import a_run
from tests.tasks.ffmpeg_double import install
from tests.tasks.web import Web

pytestmark = pytest.mark.django_db
CASES: dict[str, str] = {}  # task -> the test that works on it twice


def shipped() -> list[str]:
    import_tasks()
    return [options.name for options in catalog.all_tasks() if options.name.startswith("tasks.")]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class Twice:
    """Works on a task as attempts 1 and 2 of one run; both must return the same."""

    def __init__(self) -> None:
        self.run_id = uuid4()

    def __call__(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        first = run_as(task, *args, run_id=self.run_id, **kwargs)
        second = run_as(task, *args, run_id=self.run_id, attempt=2, **kwargs)
        assert first == second
        return first


@pytest.fixture
def twice() -> Twice:
    return Twice()


def covers(*tasks: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say which tasks a test works on twice."""

    def note(test: Callable[..., None]) -> Callable[..., None]:
        CASES.update({task.name: test.__name__ for task in tasks})
        return test

    return note


@covers(examples.ok, examples.add, examples.slow, examples.cancellable)
def test_the_examples_touch_nothing(twice: Twice, media: Path) -> None:
    assert twice(examples.ok, x=1) == {"x": 1}
    assert twice(examples.add, 1, 2) == 3
    assert twice(examples.slow, seconds=0.01) == 0.01
    assert twice(examples.cancellable, steps=2, seconds=0) == 2
    assert files(media) == {}


@covers(examples.flaky)
def test_a_flaky_task_that_succeeded_succeeds_again() -> None:
    run_id = uuid4()
    for attempt in (3, 4):
        assert run_as(examples.flaky, run_id=run_id, attempt=attempt) == f"succeeded at attempt {attempt}"


@covers(examples.poison)
def test_a_poison_fails_each_time(media: Path) -> None:
    run_id = uuid4()
    for attempt in (1, 2):
        with pytest.raises(ValueError, match="can never work"):
            run_as(examples.poison, run_id=run_id, attempt=attempt)
    assert files(media) == {}


@covers(reports.monthly_csv)
def test_one_report_is_written(twice: Twice, media: Path) -> None:
    run = a_run()
    twice(reports.monthly_csv, f"{run.scheduled_for:%Y-%m}")
    assert list(files(media)) == [f"reports/{run.scheduled_for:%Y-%m}.csv"]


@covers(http.call_url)
def test_one_request_is_sent_by_a_run_that_has_its_answer(twice: Twice, web: Web) -> None:
    assert twice(http.call_url, web.url("/hook"), body={"a": 1})["status"] == 200
    assert [request.headers["Idempotency-Key"] for request in web.requests] == [str(twice.run_id)]
    assert json.loads(web.requests[0].body) == {"a": 1}


@covers(mail_tasks.send_mail)
def test_one_mail_is_sent(twice: Twice) -> None:
    twice(mail_tasks.send_mail, "ann@example.org", "Hello", "Text", html="<p>Text</p>")
    assert [sent.extra_headers["Message-ID"] for sent in mail.outbox] == [f"<{twice.run_id}@localhost>"]


@covers(media_tasks.resize_image)
def test_one_smaller_picture_is_made(twice: Twice, media: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (80, 40), "red").save(picture, "PNG")
    default_storage.save("pictures/red.png", ContentFile(picture.getvalue()))
    made = twice(media_tasks.resize_image, "pictures/red.png", 20, 20)
    assert (made["path"], made["width"], made["height"]) == ("pictures/red-20x20.png", 20, 10)
    assert set(files(media)) == {"pictures/red.png", "pictures/red-20x20.png"}


@covers(media_tasks.transcode_video)
def test_one_video_is_made_by_one_ffmpeg(
    twice: Twice, media: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ffmpeg = install(tmp_path, monkeypatch)
    default_storage.save("films/a.mov", ContentFile(b"a film"))
    made = twice(media_tasks.transcode_video, "films/a.mov", 480)
    assert made == {"path": "films/a-480p.mp4", "url": "/media/films/a-480p.mp4", "seconds": 10.0}
    assert set(files(media)) == {"films/a.mov", "films/a-480p.mp4"}
    assert ffmpeg.transcodings() == 1


class Counting(BaseCommand):
    """A command with an effect."""

    runs = 0

    def handle(self, *args: Any, **options: Any) -> None:
        type(self).runs += 1
        self.stdout.write("counted")


@covers(management.run_command)
def test_one_command_is_run(twice: Twice, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.EVERYSLOT_COMMANDS = ["count"]
    monkeypatch.setattr(Counting, "runs", 0)
    monkeypatch.setattr(management, "call_command", lambda name, *words, **options: call_command(Counting(), **options))
    assert twice(management.run_command, "count") == {"output": "counted\n"}
    assert Counting.runs == 1


def test_every_task_we_ship_is_worked_on_twice_here() -> None:
    assert sorted(CASES) == shipped()


def test_another_run_has_effects_of_its_own() -> None:
    for _ in range(2):
        run_as(mail_tasks.send_mail, "ann@example.org", "Hello", "Text")
    assert len(mail.outbox) == 2
    assert ProcessedStep.objects.count() == 2


def test_what_failed_is_not_remembered() -> None:
    run_id = uuid4()
    with pytest.raises(GiveUp):
        run_as(mail_tasks.send_mail, "ann@example.org", "Hel\nlo", "Text", run_id=run_id)
    run_as(mail_tasks.send_mail, "ann@example.org", "Hello", "Text", run_id=run_id, attempt=2)
    assert len(mail.outbox) == 1
