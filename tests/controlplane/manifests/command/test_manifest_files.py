"""Reading and writing YAML files: lines, limits, and errors with their positions."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest

from controlplane.manifests.command.manifest_files import UnreadableFileError, read_files, written

POOL = """\
apiVersion: headway/v1
kind: Pool
metadata:
  name: chat
spec:
  weight: 50
  engine_networks: ""
"""

MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join([f'*{inner}'] * 10)}]}}\n" for inner, name in pairwise("abcdefg")
)


def file(tmp_path: Path, text: str, name: str = "a.yaml") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_a_file_holds_several_objects_and_each_field_has_its_line(tmp_path: Path) -> None:
    name = file(tmp_path, f"{POOL}---\n# nothing\n---\n{POOL}")
    first, second = read_files([name])
    assert first.document["spec"] == {"weight": 50, "engine_networks": ""}
    assert (first.position(["spec", "weight"]), second.position(["spec", "weight"])) == (f"{name}:6", f"{name}:16")
    assert second.position(["spec", "region"]) == f"{name}:15"
    assert second.position() == f"{name}:11"


def test_folders_are_read_with_their_folders_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("b.yml", "a.yaml", "inner/c.json", "notes.txt"):
        file(tmp_path, POOL if name != "notes.txt" else "{", name)
    assert [Path(item.file).name for item in read_files([str(tmp_path)])] == ["a.yaml", "b.yml", "c.json"]


def test_written_objects_are_read_back(tmp_path: Path) -> None:
    (item,) = read_files([file(tmp_path, POOL)])
    text = written([item.document, item.document], ["2 engines that discovery maintains"])
    assert text.startswith("# Not exported: 2 engines that discovery maintains\n---\napiVersion: headway/v1\n")
    assert [one.document for one in read_files([file(tmp_path, text)])] == [item.document] * 2


def test_values_are_read_as_yaml_1_2_has_them(tmp_path: Path) -> None:
    values = "{a: off, b: true, c: 8e-5, d: 010, e: 12:30, f: no, g: 7, h: ~, i: -.5, j: 2030-01-02}"
    (item,) = read_files([file(tmp_path, f"{POOL}  values: {values}\n")])
    assert item.document["spec"]["values"] == {
        "a": "off", "b": True, "c": 8e-5, "d": 10.0, "e": "12:30", "f": "no", "g": 7, "h": None, "i": -0.5,
        "j": "2030-01-02",
    }  # fmt: skip


def test_texts_that_would_be_read_as_other_types_are_quoted(tmp_path: Path) -> None:
    texts = [
        "off",
        "true",
        "1e3",
        "010",
        "12:30",
        "~",
        "2030-01-02",
        "a: b",
        "é",
        "-",
        "",
        "x\ny",
        "# no",
        "0x1F",
        ".5",
    ]
    document = {
        "apiVersion": "headway/v1",
        "kind": "Pool",
        "metadata": {"name": "1e3"},
        "spec": {"a": texts, "b": 8e-05},
    }
    (item,) = read_files([file(tmp_path, written([document]))])
    assert item.document == document


def test_aliases_and_merges_are_expanded(tmp_path: Path) -> None:
    text = POOL + "  first: &first {a: 1}\n  second: {<<: *first, b: *first}\n"
    (item,) = read_files([file(tmp_path, text)])
    assert item.document["spec"]["second"] == {"a": 1, "b": {"a": 1}}
    assert item.position(["spec", "second", "b"]).endswith(":9")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POOL + "  weight: 60\n", ":8: weight appears twice; keep one."),
        ("kind: Pool\nmetadata: {name: a}\n", ":1: apiVersion is missing."),
        (POOL + "status: {}\n", ":8: status is unknown; known: apiVersion, kind, metadata, spec."),
        ("- 1\n", ":1: a document must be an object with apiVersion, kind, metadata, spec."),
        ("a: [1\nb: 2\n", ":2: expected ',' or ']', but got ':'."),
        ("a: !!python/object/apply:os.system [echo]\n", ":1: could not determine a constructor"),
        ("a: \x00\n", "special characters are not allowed"),
        ("a: " + "[" * 2000, "is nested too deeply"),
        ("a: &a [*a]\n", "is nested too deeply"),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
         "f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n", "has more than 50000 values"),
        (MERGES, "has more than 50000 values"),
        (POOL + "  at: !!timestamp 2030-01-02\n", "has a value that JSON does not have"),
        ("? [1, 2]\n: 3\n", ":1: a name must be a text."),
    ],
)  # fmt: skip
def test_bad_files_are_rejected_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    name = file(tmp_path, text)
    with pytest.raises(UnreadableFileError) as error:
        read_files([name])
    assert str(error.value).startswith(name)
    assert message in str(error.value)


def test_missing_files_and_other_encodings_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableFileError, match="No such file"):
        read_files([str(tmp_path / "none.yaml")])
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(UnreadableFileError, match="is not UTF-8"):
        read_files([str(tmp_path / "latin.yaml")])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UnreadableFileError, match="the folder has no file"):
        read_files([str(empty)])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POOL.encode())))
    assert read_files(["-"])[0].position() == "-:1"
