"""The documentation is true: its commands print the output shown, and its links have targets.

A page that takes long is executed with `--deep` only.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from network_pictures import pictures
from transcripts import REPOSITORY, Command, Place, agrees, commands_of

PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "traces" / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "docs" / "studies").glob("*.md")),
]
# Small cases of many kinds of engine: to interpret them, but for views, takes less than to compile these.
INTERPRETED = (
    *("converting.md", "dgx-1.md", "jobs.md", "memory.md", "networks.md", "network-models.md", "packet.md"),
    *("packet-ns3.md", "packet-tcp.md"),
    *("network-features.md", "running.md"),
    *("streams.md", "uneven-machines.md"),
)
LONG = (
    *("README.md", "astra-1.0.md", "calibrating.md", "collectives.md", "comparing.md", "converting.md"),
    *("cookbook.md", "critical-path.md", "dgx-1.md", "editing.md", "jobs.md"),
    *(
        "extending.md",
        "first-steps.md",
        "goodput.md",
        "help.md",
        "inference.md",
        "serving.md",
        "engines.md",
        "fleets.md",
        "serving-experts.md",
        "inspecting.md",
        "machines.md",
        "memory.md",
        "networks.md",
        "network-models.md",
    ),
    *("network-features.md", "network-files.md"),
    *("packet-ns3.md", "packet-tcp.md", "training-step.md", "training-experts.md", "programs.md"),
    *("output.md", "packet.md", "pictures.md", "profiles.md", "pytorch.md", "running.md", "search.md"),
    *(
        "failures.md",
        "software.md",
        "stragglers.md",
        "streams.md",
        "sweeps.md",
        "tools.md",
        "training.md",
        "uneven-machines.md",
    ),
    "what-if.md",
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def _name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_of_a_page_is_closed(page: Path) -> None:
    is_open = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            assert not (is_open and line != "```"), f"line {number} opens a block within another"
            is_open = not is_open
    assert not is_open


@pytest.mark.in_turn(days=2)
@pytest.mark.usefixtures("warm_engine")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=_name(page), marks=[pytest.mark.deep] * (page.name in LONG))
        for page in PAGES
        if page.name != "recording.md"  # with PyTorch: tests/recorder
    ],
)
def test_every_command_prints_the_output_on_the_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    for command in commands_of(page.read_text(encoding="utf-8")):
        if command.is_installing:
            continue
        is_interpreted = page.name in INTERPRETED and "et-sim inspect" not in command.text
        if not (command.words or command.is_python):
            is_interpreted = True  # in a shell, it would wait
        monkeypatch.setenv("ET_SIM_COMPILE", "never" if is_interpreted else "now")
        status, printed = place.run(command)
        where = f"{_name(page)}, line {command.line}: {command.text}"
        if command.is_python:
            assert status == 0, "\n".join([where, *printed])
        elif not agrees(command.shown, printed):
            assert printed == command.shown, f"{where}\n(python tests/docs/transcripts.py {_name(page)})"


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, outside of blocks."""
    blocks = page.read_text(encoding="utf-8").split("\n```")
    lines = [line for block in blocks[::2] for line in block.splitlines() if line.startswith("#")]
    words = (re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()) for line in lines)
    return {word.replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_to_a_part_of_a_page_leads_to_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]*)\)", page.read_text(encoding="utf-8"))
    targets = [(page.parent / name if name else page, anchor) for name, anchor in links if "://" not in name]
    assert [
        (target.name, anchor)
        for target, anchor in targets
        if target.suffix == ".md" and anchor not in _anchors(target)
    ] == []


def test_every_question_is_two_clicks_from_the_first_page() -> None:
    """Check that the first page lists every page that answers a question, or a page with the question."""
    docs = REPOSITORY / "docs"
    wanted = (docs / "README.md").read_text(encoding="utf-8").partition("## All pages")[0]
    answers = re.findall(r"^\| (\d+) \| .* \| \[.*\]\((.*)\) \|$", (docs / "questions.md").read_text(), re.M)
    assert [int(number) for number, _ in answers] == list(range(1, 81))
    assert "(questions.md)" in wanted


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = [target for target in LINK.findall(text) if "://" not in target]
    broken = [target for target in targets if not (page.parent / target).exists()]
    assert not broken


def test_installing_takes_two_commands_and_ci_runs_them_in_one_checkout_with_one_cache() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    installing = [command.text for command in commands_of(readme) if command.is_installing]
    sets_up = [text for text in installing if "pip install" in text]
    assert len(sets_up) == 2
    ci_lines = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in ci_lines if line in sets_up] == sets_up
    between = ci_lines[ci_lines.index(sets_up[0]) + 1 : ci_lines.index(sets_up[1])]
    assert any("rm -rf .venv et-sim-demo" in line for line in between)
    assert not [line for line in between if "cd " in line or "ET_SIM_CACHE_DIR" in line or "cache" in line]


def test_the_answer_of_the_readme_has_the_figures_of_its_output() -> None:
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    [(change, low, high)] = re.findall(r"≈ -(\S+) % (\S+) to (\S+) % Finite differences", readme)
    assert f"shorten the step by {change} % in the model" in readme
    assert f"the true change lies between {low} and {high} %" in readme


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["a", "...", "c"], ["a", "c"], True),
        (["a", "...", "d"], ["a", "b", "c"], False),
        ([], [], True),
    ],
)
def test_dots_stand_for_any_lines(shown: list[str], printed: list[str], agree: bool) -> None:
    assert agrees(shown, printed) is agree


@pytest.mark.usefixtures("warm_engine")
def test_the_picture_of_the_readme_equals_the_one_drawn_today(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run(Command(0, "et-sim demo"))
    assert place.run(Command(0, "et-sim inspect et-sim-demo/run picture --svg demo.svg")) == (0, [])
    drawn = (tmp_path / "page" / "demo.svg").read_text(encoding="utf-8")
    assert drawn == (REPOSITORY / "docs" / "demo-timeline.svg").read_text(encoding="utf-8")


@pytest.mark.usefixtures("warm_engine")
def test_the_picture_of_a_sweep_equals_the_one_drawn_today(tmp_path: Path) -> None:
    place = Place(tmp_path)
    commands = commands_of((REPOSITORY / "docs" / "first-steps.md").read_text(encoding="utf-8"))
    needed = (
        "et-sim demo",
        "cat > enough.yml",
        "et-sim sweep enough.yml",
        "et-sim inspect enough.sweep --svg",
    )
    for command in commands:
        if command.text.startswith(needed):
            assert place.run(command)[0] == 0
    drawn = (tmp_path / "page" / "sweep.svg").read_text(encoding="utf-8")
    assert drawn == (REPOSITORY / "docs" / "sweep.svg").read_text(encoding="utf-8")


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
def test_the_picture_of_a_pipeline_equals_the_one_drawn_today(tmp_path: Path) -> None:
    place = Place(tmp_path)
    commands = commands_of((REPOSITORY / "docs" / "pictures.md").read_text(encoding="utf-8"))
    first = next(at for at, command in enumerate(commands) if command.text.startswith("et-sim make llm"))
    for command in commands[first : first + 3]:
        assert place.run(command)[0] == 0
    drawn = (tmp_path / "page" / "pipeline-activity.svg").read_text(encoding="utf-8")
    assert drawn == (REPOSITORY / "docs" / "pipeline-activity.svg").read_text(encoding="utf-8")


def test_pictures_of_networks_equal_those_drawn_today() -> None:
    drawn = pictures()
    assert len(drawn) >= 12
    for name, text in drawn.items():
        assert text == (REPOSITORY / "docs" / "networks" / name).read_text(encoding="utf-8"), name
