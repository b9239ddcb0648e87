"""Files that are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_byoc_kit.files import new_folder, replacing


def test_the_file_is_there_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("ne")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "deep" / "file"
    target.parent.mkdir()
    link.symlink_to(target)
    with replacing(link) as unfinished:
        unfinished.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_written_itself() -> None:
    with replacing(Path("/dev/null")) as unfinished:
        unfinished.write_text("new")
    assert Path("/dev/null").is_char_device()


def test_a_folder_is_there_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with new_folder(path) as unfinished:
        (unfinished / "file").write_text("text")
        assert not path.exists()
    assert [item.name for item in path.iterdir()] == ["file"]
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_folder_stays_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with new_folder(Path()) as unfinished:
        (unfinished / "sub").mkdir()
        (unfinished / "sub" / "file").write_text("text")
    assert list(map(str, Path().rglob("*"))) == ["sub", "sub/file"]


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "folder"):
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half"):
        fail()
    assert list(tmp_path.iterdir()) == []
