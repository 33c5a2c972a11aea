"""Different weights under the same name have a different revision."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvstore.connector.weight_revision import weight_revision


def model(folder: Path, size: int = 1 << 20, seed: int = 1) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"layers": 2}')
    (folder / "model.safetensors").write_bytes(random.Random(seed).randbytes(size))
    return folder


def test_equal_files_have_equal_revisions_in_any_folder(tmp_path: Path) -> None:
    assert weight_revision(model(tmp_path / "a")) == weight_revision(model(tmp_path / "elsewhere" / "b"))


def test_further_trained_weights_have_another_revision(tmp_path: Path) -> None:
    assert weight_revision(model(tmp_path / "a")) != weight_revision(model(tmp_path / "b", seed=2))


@pytest.mark.parametrize("size", [0, 1, 4096, 5000])
def test_small_files_are_hashed_completely(tmp_path: Path, size: int) -> None:
    one = weight_revision(model(tmp_path / "a", size))
    assert one == weight_revision(model(tmp_path / "b", size))
    assert one != weight_revision(model(tmp_path / "c", size + 1))


def test_the_configuration_changes_the_revision(tmp_path: Path) -> None:
    first, second = model(tmp_path / "a"), model(tmp_path / "b")
    (second / "config.json").write_text('{"layers": 3}')
    assert weight_revision(first) != weight_revision(second)


def test_a_folder_without_weights_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set weight_revision"):
        weight_revision(tmp_path)
