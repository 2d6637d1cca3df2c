"""Reading and replacing files, in a storage that is a folder and in one that is none (as S3 is)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, InMemoryStorage, Storage

from scheduler_app.core.errors import GiveUp
from scheduler_app.testing import working_on
from tasks import examples
from tasks.files import NameTaken, local_copy, replace_file


@pytest.fixture(params=["folder", "no folder"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    kept = FileSystemStorage(location=tmp_path / "kept") if request.param == "folder" else InMemoryStorage()
    kept.save("a/old.txt", ContentFile(b"old"))
    return kept


def content(storage: Storage, name: str) -> bytes:
    with storage.open(name) as file:
        return bytes(file.read())


def names(storage: Storage) -> list[str]:
    return storage.listdir("a")[1]


def replace(storage: Storage, name: str, data: bytes) -> None:
    def write(part: Path) -> None:
        part.write_bytes(data)

    with working_on(examples.ok):
        replace_file(name, write, storage)


def test_a_copy_has_the_name_and_the_bytes(storage: Storage) -> None:
    with local_copy("a/old.txt", 3, storage) as path:
        assert (path.name, path.read_bytes()) == ("old.txt", b"old")


@pytest.mark.parametrize("error", [NotImplementedError, FileNotFoundError, ValueError])
def test_what_its_reader_raises_comes_out_as_it_is(storage: Storage, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^its own$"), local_copy("a/old.txt", 3, storage):
        raise error("its own")


@pytest.mark.parametrize(("name", "limit"), [("a/old.txt", 2), ("a/none.txt", 9), ("../old.txt", 9)])
def test_what_is_too_large_or_not_there_is_given_up(storage: Storage, name: str, limit: int) -> None:
    with pytest.raises(GiveUp), local_copy(name, limit, storage):
        pytest.fail("it was copied")


def test_a_new_file_takes_the_place_of_the_old_one_and_nothing_else_stays(storage: Storage) -> None:
    for data in (b"new", b"newer"):
        replace(storage, "a/old.txt", data)
        assert (content(storage, "a/old.txt"), names(storage)) == (data, ["old.txt"])


def test_a_writer_that_fails_leaves_the_old_file(storage: Storage) -> None:
    def failing(part: Path) -> None:
        part.write_bytes(b"half")
        raise NotImplementedError("no codec")

    with pytest.raises(NotImplementedError, match="no codec"), working_on(examples.ok):
        replace_file("a/old.txt", failing, storage)
    assert (content(storage, "a/old.txt"), names(storage)) == (b"old", ["old.txt"])


def test_a_name_that_another_took_meanwhile_is_tried_again_and_nothing_else_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage: Any = InMemoryStorage()
    delete = storage.delete

    def raced(name: str) -> None:
        delete(name)
        if name == "a/report.csv":
            monkeypatch.undo()
            storage.save(name, ContentFile(b"theirs"))

    monkeypatch.setattr(storage, "delete", raced)
    with pytest.raises(NameTaken):
        replace(storage, "a/report.csv", b"ours")
    assert (content(storage, "a/report.csv"), names(storage)) == (b"theirs", ["report.csv"])
