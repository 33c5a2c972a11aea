"""`headway help [COMMAND]` and `headway completion SHELL`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from controlplane.management.programs import GROUPS, PROGRAMS, parser_of

SHELLS = ("bash", "zsh", "fish")


def main(argv: Sequence[str], prog: str) -> int:
    """Print the list of commands, the help of one, or a completion script, and return the exit status."""
    caller, command = prog.rsplit(maxsplit=1)
    options = parser(prog).parse_args(argv)
    if command == "completion":
        sys.stdout.write(_completion(options.shell, caller))
    elif options.command is None:
        sys.stdout.write("\n".join([*overview(caller), ""]))
    else:
        _set_up_django(options.command)
        parser_of(options.command, caller).print_help()
    return 0


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of `help` or `completion`, whichever `prog` ends with."""
    if prog.endswith("completion"):
        made = argparse.ArgumentParser(
            prog=prog, description="Print a completion, as for ~/.local/share/bash-completion/completions/headway."
        )
        made.add_argument("shell", choices=SHELLS)
        return made
    made = argparse.ArgumentParser(prog=prog, description="List the commands, or describe one.")
    made.add_argument("command", nargs="?", choices=sorted(_summaries()), metavar="COMMAND")
    return made


def overview(caller: str) -> Iterator[str]:
    """Yield the lines of the list of commands."""
    yield f"Usage: {caller} COMMAND [OPTION…]"
    width = max(map(len, _summaries()))
    for heading, commands in GROUPS.items():
        yield ""
        yield heading
        for name, summary in commands.items():
            yield f"  {name:{width}}  {summary}"
    yield ""
    yield f"`{caller} COMMAND --help` describes a command."


def _summaries() -> dict[str, str]:
    return {name: summary for commands in GROUPS.values() for name, summary in commands.items()}


def _completion(shell: str, caller: str) -> str:
    import shtab

    _set_up_django()
    root = argparse.ArgumentParser(prog=caller)
    commands = root.add_subparsers(metavar="COMMAND")
    for name, summary in _summaries().items():
        commands.add_parser(name, parents=[parser_of(name, caller)], add_help=False, help=summary)
    return shtab.complete(root, shell)


def _set_up_django(command: str = "") -> None:
    """Load Django, unless the command is a program without it."""
    if command not in PROGRAMS:
        import django

        django.setup()
