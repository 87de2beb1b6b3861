"""Generate the users' page on options, `docs/options.md`, from those that commands declare.

python tests/docs/options_page.py docs/options.md
"""

# ruff: noqa: E501 - the lines of the page are as long as those of the other pages

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from et_sim.cli.explain import all_options
from et_sim.explain import CommandOption

_OPENING = """\
# Every option of every command

<!-- Generated: python tests/docs/options_page.py docs/options.md -->

`et-sim COMMAND --help` prints the options of one command, and `et-sim explain OPTION` those of one name. Options with one
meaning in several commands are listed once.
"""


def options_page() -> str:
    """Return the whole page."""
    together = sorted(all_options(), key=lambda option: option.commands)
    return _OPENING + "".join(_section(*of) for of in groupby(together, lambda option: option.commands))


def _section(commands: tuple[str, ...], options: groupby[tuple[str, ...], CommandOption]) -> str:
    heading = f"\n## et-sim {', '.join(commands)}\n\n| option | meaning |\n|---|---|\n"
    return heading + "".join(sorted(_row(option) for option in options))


def _row(option: CommandOption) -> str:
    """Return the row of an option; a text that states its default is left as it is."""
    default = f" (default: {option.default})" if option.default and "default" not in option.text else ""
    allowed = f"; one of {option.allowed}" if option.allowed else ""
    text = f"{option.text}{default}{allowed}".replace("|", "\\|").replace("%%", "%")
    return f"| `{option.name}` | {text} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(options_page(), encoding="utf-8")
