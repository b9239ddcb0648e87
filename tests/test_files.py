"""Files that are whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.files import new_folder, replacing, replacing_directory


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


# Directories


def test_a_directory_is_replaced_with_all_it_holds(tmp_path: Path) -> None:
    target = tmp_path / "made"
    for name in ("first", "second"):
        with replacing_directory(target) as unfinished:
            (unfinished / name).write_text(name)
            assert not (target / name).exists()
        assert [path.name for path in target.iterdir()] == [name]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_directory_that_is_not_finished_is_not_there(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with replacing_directory(target) as unfinished:
        (unfinished / "kept").write_text("")

    def interrupted() -> None:
        with replacing_directory(target) as unfinished:
            (unfinished / "half").write_text("")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in target.iterdir()] == ["kept"]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_directory_is_replaced_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "made")
    with replacing_directory(tmp_path / "link") as unfinished:
        (unfinished / "file").write_text("")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "made/file").is_file()


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


@pytest.mark.parametrize("write", [replacing, replacing_directory])
def test_links_in_a_loop_are_an_error_of_the_system(write: Any, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"), write(tmp_path / "loop" / "x"):
        pass


def test_a_new_folder_cannot_be_behind_links_in_a_loop(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    refused = pytest.raises(OptionError, match=r"loop/x cannot be written: .*symbolic links")
    with refused, new_folder(tmp_path / "loop" / "x"):
        pass
