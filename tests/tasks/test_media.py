"""Pictures and videos: what is made, what is refused, and that a stopped ffmpeg is gone."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from PIL import Image

from scheduler_app.core.errors import Cancelled, GiveUp
from scheduler_app.testing import run_as, working_on
from tasks import ffmpeg, media
from tests.tasks.ffmpeg_double import FfmpegDouble, install

pytestmark = pytest.mark.django_db


def picture(name: str, size: tuple[int, int] = (80, 40), kind: str = "PNG", **options: Any) -> str:
    out = io.BytesIO()
    Image.new("RGB", size, "red").save(out, kind, **options)
    return default_storage.save(name, ContentFile(out.getvalue()))


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FfmpegDouble:
    default_storage.save("a.mov", ContentFile(b"a film"))
    return install(tmp_path, monkeypatch)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("kind", "ending"), [("PNG", "png"), ("JPEG", "jpg"), ("WEBP", "webp"), ("GIF", "gif")])
def test_a_picture_keeps_its_kind_and_its_shape(kind: str, ending: str) -> None:
    picture(f"a.{ending}", kind=kind)
    made = run_as(media.resize_image, f"a.{ending}", 20, 20)
    assert (made["path"], made["width"], made["height"]) == (f"a-20x20.{ending}", 20, 10)
    with Image.open(default_storage.path(made["path"])) as small:
        assert (small.format, small.size) == (kind, (20, 10))


def test_a_small_picture_is_not_made_larger() -> None:
    picture("a.png")
    assert run_as(media.resize_image, "a.png", 500, 500)["width"] == 80


def test_a_picture_is_turned_upright_and_loses_its_metadata() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif[0x010E] = "where ann lives"
    picture("a.jpg", kind="JPEG", exif=exif)
    made = run_as(media.resize_image, "a.jpg", 40, 40)
    assert (made["width"], made["height"]) == (20, 40)
    with Image.open(default_storage.path(made["path"])) as small:
        assert dict(small.getexif()) == {}


def test_too_many_pixels_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_PIXELS", 100)
    picture("a.png")
    with pytest.raises(GiveUp, match="has 80 x 40 pixels"):
        run_as(media.resize_image, "a.png", 10, 10)


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_PICTURE_BYTES", 10)
    picture("a.png")
    with pytest.raises(GiveUp, match="at most 10 are taken"):
        run_as(media.resize_image, "a.png", 10, 10)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"BM" + b"\0" * 100])
def test_what_is_no_picture_is_given_up_and_leaves_nothing(media: Path, content: bytes) -> None:
    from tasks.media import resize_image

    default_storage.save("a.png", ContentFile(content))
    with pytest.raises(GiveUp, match="not a picture"):
        run_as(resize_image, "a.png", 10, 10)
    assert names(media) == {"a.png"}


@pytest.mark.parametrize("path", ["../a.png", "/etc/passwd", "", "a/../../b.png", ".hidden.png", "a\0.png", "none.png"])
def test_a_path_outside_of_the_storage_or_to_nothing_is_given_up(path: str) -> None:
    with pytest.raises(GiveUp):
        run_as(media.resize_image, path, 10, 10)


@pytest.mark.parametrize(("width", "height"), [(0, 1), (1, 0), (-1, 1), (8001, 1), (1.5, 1), ("1", 1)])
def test_sizes_out_of_bounds_are_given_up(width: Any, height: Any) -> None:
    picture("a.png")
    with pytest.raises(GiveUp, match="width and height"):
        run_as(media.resize_image, "a.png", width, height)


def test_without_ffmpeg_the_reason_and_the_remedy_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    default_storage.save("a.mov", ContentFile(b"a film"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GiveUp, match="apt-get install ffmpeg"):
        run_as(media.transcode_video, "a.mov")


def test_what_is_no_video_is_given_up(double: FfmpegDouble, media: Path) -> None:
    from tasks.media import transcode_video

    double.says("no-video")
    with pytest.raises(GiveUp, match="not a video that can be read: Invalid data"):
        run_as(transcode_video, "a.mov")
    assert names(media) == {"a.mov"}


def test_a_failed_transcoding_says_why_and_leaves_nothing(double: FfmpegDouble, media: Path) -> None:
    from tasks.media import transcode_video

    double.says("fail")
    with pytest.raises(GiveUp, match=r"cannot transcode a\.mov: Conversion failed!"):
        run_as(transcode_video, "a.mov")
    assert names(media) == {"a.mov"}


@pytest.mark.parametrize("height", [15, 2161, 720.0, "720"])
def test_a_height_out_of_bounds_is_given_up(height: Any) -> None:
    with pytest.raises(GiveUp, match="height"):
        run_as(media.transcode_video, "a.mov", height)


class Asking:
    """A run that is asked to stop after a while."""

    def __init__(self, checks: int) -> None:
        self.left = checks
        self.shown: list[float] = []

    def progress(self, percent: float, message: str = "") -> None:
        self.shown.append(percent)

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Cancelled("stop")


def test_a_cancel_stops_ffmpeg(double: FfmpegDouble, tmp_path: Path) -> None:
    double.says("keep-going")
    source = tmp_path / "a.mov"
    source.write_bytes(b"a film")
    run = Asking(checks=3)
    with working_on(media.transcode_video), pytest.raises(Cancelled):
        ffmpeg.transcode(ffmpeg.find(), source, tmp_path / "b.mp4", 480, 10.0, run)
    assert run.shown == [40.0, 50.0, 50.0]
    for pid in double.pids():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
