"""The pictures of docs/networks.md, which the tool draws: python tests/docs/network_pictures.py"""

from __future__ import annotations

import re

from transcripts import REPOSITORY

from et_sim.cli.network import topology_picture
from et_sim.machine import read_network_alone
from et_sim.machine.texts import parse_yaml

PAGE = REPOSITORY / "docs" / "networks.md"
PICTURE = re.compile(r"```yaml\n(graph: .*?)```\n\n!\[[^\]]*\]\(networks/([^)]*)\)", re.DOTALL)


def pictures() -> dict[str, str]:
    """Return the SVG text of each picture of the page, by its name."""
    result = PICTURE.findall(PAGE.read_text(encoding="utf-8"))
    return {
        name: topology_picture(read_network_alone(parse_yaml(described, "the page")))
        for described, name in result
    }


if __name__ == "__main__":
    for name, text in pictures().items():
        (PAGE.parent / "networks" / name).write_text(text, encoding="utf-8")
