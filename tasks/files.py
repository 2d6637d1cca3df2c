"""Files that appear whole: written under a temporary name, then put in the place of the old one in Django's storage.

Guaranteed where the storage is a folder: a reader sees the old file or the new one, never a part; a second execution
of a run replaces the file instead of adding one. It would break if the temporary file lay on another file system, or
if two attempts wrote into one temporary file: its name carries the run and the attempt.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from django.core.exceptions import SuspiciousFileOperation
from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage, default_storage

from scheduler_app import current_run
from scheduler_app.core.errors import GiveUp

MAX_NAME = 200


class NameTaken(Exception):
    """Someone else wrote the same name at the same moment; the run is tried again."""


def checked_name(name: str) -> str:
    """A name inside the storage, with `/`; raises GiveUp for one that leaves it, is empty, hidden or too long."""
    path = PurePosixPath(name)
    bad = not path.name or path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name
    if bad or path.name.startswith(".") or len(name) > MAX_NAME:
        raise GiveUp(f"{name[:MAX_NAME]!r} is not a file name inside the storage")
    return path.as_posix()


def replace_file(name: str, write: Callable[[Path], None], storage: Storage = default_storage) -> None:
    """Let `write` make a file at the path it is given, then put it in place of `name`.

    Raises what `write` raises (nothing is left behind then) and GiveUp for a bad name.
    """
    name = checked_name(name)
    path = _path_of(name, storage)
    if path is None:
        _upload(name, write, storage)
        return
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _temporary(folder, PurePosixPath(name).name) as part:
        write(part)
        mode = getattr(storage, "file_permissions_mode", None)
        if mode is not None:
            part.chmod(mode)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(folder / PurePosixPath(name).name)


@contextmanager
def local_copy(name: str, max_bytes: int, storage: Storage = default_storage) -> Iterator[Path]:
    """A stored file as a path on this machine; raises GiveUp if it is missing or larger than `max_bytes`."""
    name = checked_name(name)
    try:
        size = storage.size(name)
    except (OSError, SuspiciousFileOperation) as error:
        raise GiveUp(f"{name} cannot be read: {error.__class__.__name__}") from error
    if size > max_bytes:
        raise GiveUp(f"{name} has {size} bytes; at most {max_bytes} are taken")
    path = _path_of(name, storage)
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / PurePosixPath(name).name
        with storage.open(name) as stored, copy.open("wb") as local:
            shutil.copyfileobj(stored, local)
        yield copy


def _path_of(name: str, storage: Storage) -> Path | None:
    """Where the file lies on this machine; None in a storage that is no folder. Raises GiveUp for a bad name."""
    if not isinstance(storage, FileSystemStorage):  # that it has a `path` says nothing: InMemoryStorage has one too
        return None
    try:
        return Path(storage.path(name))
    except SuspiciousFileOperation as error:
        raise GiveUp(f"{name!r} is not a file name inside the storage") from error


@contextmanager
def _temporary(folder: Path, filename: str) -> Iterator[Path]:
    """A path of this attempt alone; what earlier attempts of the run left is removed, so none can put it in place."""
    run = current_run()
    prefix, suffix = f".{run.id}-", f"-{filename}"
    for left in folder.glob(f"{prefix}*{glob.escape(suffix)}"):
        left.unlink(missing_ok=True)
    part = folder / f"{prefix}{run.attempt}{suffix}"
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _upload(name: str, write: Callable[[Path], None], storage: Storage) -> None:
    """A storage that is no folder takes the file as one upload, after the old one has gone."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / PurePosixPath(name).name
        write(part)
        storage.delete(name)
        with part.open("rb") as written:
            stored = storage.save(name, File(written))
    if stored != name:
        storage.delete(stored)
        raise NameTaken(f"{name} was written by someone else at the same moment")
