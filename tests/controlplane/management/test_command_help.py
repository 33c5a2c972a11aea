"""`help` and `completion`: every command is listed, described, and completed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import manage
from controlplane.management.command_help import SHELLS, main, overview
from controlplane.management.programs import GROUPS, PROGRAMS, parser_of

ROOT = Path(manage.__file__).parent
COMMANDS = sorted(name for commands in GROUPS.values() for name in commands)
OF_DJANGO = {"changepassword"}


def test_every_command_is_in_one_group_and_in_the_document() -> None:
    ours = {path.stem for path in (ROOT / "controlplane/management/commands").glob("[a-z]*.py")}
    assert sorted([*ours, *PROGRAMS, *OF_DJANGO]) == COMMANDS
    text = (ROOT / "docs/commands.md").read_text()
    assert set(re.findall(r"^\| `python manage\.py ([\w-]+)", text, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]], ids=str)
def test_the_list_of_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        manage.main(["headway", *arguments])
    out = capsys.readouterr().out
    assert (ended.value.code, out) == (0, "\n".join([*overview("headway"), ""]))
    assert "\nExamine\n  doctor             check this installation" in out
    assert "makemigrations" not in out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_help_without_djangos_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command], "headway help") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: headway {command}")
    assert "--pythonpath" not in out
    if command not in OF_DJANGO | {"help", "completion"}:
        hidden = {option for action in parser_of(command, "headway")._actions for option in action.option_strings}
        assert "--help" in hidden


def test_unknown_commands_are_errors_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["aply"], "headway help")
    assert (ended.value.code, "choose from" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_name_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([shell], "headway completion") == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)
    assert "prune" in script
    assert "approximate" in script
    assert "pythonpath" not in script


def test_bash_completes_commands_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bash"], "headway completion")
    (tmp_path / "headway").write_text(capsys.readouterr().out)
    typed = """
        source "$1"
        complete_it() {
          COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
          "$(complete -p headway | sed 's/.*-F \\([^ ]*\\).*/\\1/')" headway "${COMP_WORDS[COMP_CWORD]}" ""
          echo "${COMPREPLY[@]}"
        }
        complete_it headway ex
        complete_it headway apply --pr
        complete_it headway completion f
    """
    done = subprocess.run(
        ["bash", "-c", typed, "bash", tmp_path / "headway"], capture_output=True, text=True, check=True
    )
    assert [set(line.split()) for line in done.stdout.splitlines()] == [{"explain", "export"}, {"--prune"}, {"fish"}]
