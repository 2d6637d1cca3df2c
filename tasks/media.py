"""Pictures and videos in Django's storage. Each result is a new file that appears whole; the original stays."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from django.core.files.storage import default_storage
from PIL import Image, ImageOps, UnidentifiedImageError

from scheduler_app import current_run, durable_task
from scheduler_app.core.errors import GiveUp
from tasks import ffmpeg
from tasks.files import checked_name, local_copy, replace_file

PICTURES = ("JPEG", "PNG", "WEBP", "GIF")
MAX_PICTURE_BYTES = 50 * 1024**2
MAX_PIXELS = 60_000_000  # of the original, before it is decoded
MAX_SIDE = 8000
MAX_VIDEO_BYTES = 10 * 1024**3
HEIGHTS = range(16, 2161)


@durable_task(time_limit=300)
def resize_image(path: str, width: int, height: int) -> dict[str, Any]:
    """Fit a picture into `width` x `height` pixels (never larger than it was) as NAME-WIDTHxHEIGHT beside it.

    JPEG, PNG, WebP and GIF (its first frame) of at most 50 MB and 60 megapixels; it is turned upright and loses its
    metadata. Returns `path`, `url`, `width` and `height` of the new file. Gives up on anything else.
    """
    if not all(isinstance(side, int) and 0 < side <= MAX_SIDE for side in (width, height)):
        raise GiveUp(f"width and height must be whole numbers from 1 to {MAX_SIDE}")
    original = PurePosixPath(checked_name(path))
    name = str(original.with_name(f"{original.stem}-{width}x{height}{original.suffix}"))
    size = (0, 0)

    def write(part: Path) -> None:
        nonlocal size
        with local_copy(path, MAX_PICTURE_BYTES) as source:
            size = _fit(source, part, (width, height))

    replace_file(name, write)
    return {"path": name, "url": default_storage.url(name), "width": size[0], "height": size[1]}


def _fit(source: Path, target: Path, box: tuple[int, int]) -> tuple[int, int]:
    try:
        with Image.open(source, formats=PICTURES) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise GiveUp(
                    f"the picture has {picture.width} x {picture.height} pixels; at most {MAX_PIXELS} are taken"
                )
            kind = picture.format
            fitted = ImageOps.exif_transpose(picture)
            fitted.thumbnail(box)
            fitted.info.clear()
            fitted.save(target, format=kind)
            return fitted.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise GiveUp(f"{source.name} is not a picture that can be read: {error}") from error


@durable_task(time_limit=3600, queue="slow", long_running=True)
def transcode_video(path: str, height: int = 720) -> dict[str, Any]:
    """Make an MP4 (H.264, AAC) of at most `height` lines as NAME-HEIGHTp.mp4 beside the original.

    Shows its progress, and stops ffmpeg when a cancel is asked for. Needs ffmpeg on the worker's PATH. A run that has
    made its file does not make it again. Returns `path`, `url` and `seconds` (the video's length, if it says so). Gives
    up without ffmpeg, on a file over 10 GB, and on one that ffmpeg cannot read.
    """
    if not isinstance(height, int) or height not in HEIGHTS:
        raise GiveUp(f"height must be a whole number from {HEIGHTS[0]} to {HEIGHTS[-1]}")
    original = PurePosixPath(checked_name(path))
    name = str(original.with_name(f"{original.stem}-{height}p.mp4"))
    run = current_run()
    known = run.remembered("made")
    if known is not None and default_storage.exists(name):
        return dict(known)
    program = ffmpeg.find()
    seconds: float | None = None

    def write(part: Path) -> None:
        nonlocal seconds
        with local_copy(path, MAX_VIDEO_BYTES) as source:
            seconds = ffmpeg.length(program, source)
            ffmpeg.transcode(program, source, part, height, seconds, run)

    replace_file(name, write)
    made = {"path": name, "url": default_storage.url(name), "seconds": seconds}
    if known is not None:
        return made
    return dict(run.step("made", lambda: made))
