"""Commands as tools: the SDK's own client lists and calls them; files stay in one folder."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from et_sim.basics.errors import UsageError
from et_sim.cli import COMMANDS, main
from et_sim.cli.serve_tools import server_of
from et_sim.cli.tool_schemas import TOOLS, schema_of, words_of

if importlib.util.find_spec("mcp") is None:
    pytest.skip("the SDK is not installed (extra: tools)", allow_module_level=True)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls interpret: each is a process of its own, which would compile."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def asked(folder: Path, *calls: tuple[str, dict[str, Any]], seconds: int = 300) -> list[Any]:
    """Return the list of tools, and the results of calls one after another."""
    from mcp import Client

    async def talk() -> list[Any]:
        async with Client(server_of(folder, seconds)) as client:
            tools = (await client.list_tools()).tools
            return [tools, *[await client.call_tool(name, given) for name, given in calls]]

    return asyncio.run(talk())


def text(result: Any) -> str:
    return str(result.content[0].text)


def declared(name: str) -> Any:
    return importlib.import_module(f"et_sim.cli.{name}").Options


def test_a_job_is_made_run_and_inspected_through_tools(tmp_path: Path) -> None:
    tools, made, done, seen = asked(
        tmp_path,
        ("make", {"kind": "all_reduce", "ranks": 8, "bytes": "1MiB", "output": "sum"}),
        ("run", {"workload": "sum", "machine": "h100-dgx:8", "out": "first"}),
        ("inspect", {"directory": "first", "view": "ops"}),
    )
    assert [tool.name for tool in tools] == list(TOOLS)
    assert not made.is_error
    assert done.structured_content["makespan_ns"] > 0
    assert seen.structured_content["rows"][0]["count"] == 8
    assert (tmp_path / "first" / "summary.json").is_file()


def test_a_refusal_is_an_error_with_the_message_of_the_command(tmp_path: Path) -> None:
    _, result = asked(tmp_path, ("run", {"workload": "nothing", "machine": "h100-dgx:8"}))
    assert result.is_error
    assert "et-sim: error: " in text(result)


def test_a_call_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    _, result = asked(tmp_path, ("explain", {"key": ["makespan_ns"]}), seconds=0)
    assert (result.is_error, text(result)[:24]) == (True, "explain was ended after ")


@pytest.mark.parametrize(
    ("name", "given", "cause"),
    [
        ("run", {"workload": "/etc/passwd"}, "names /etc/passwd, which is outside"),
        ("run", {"workload": "a", "system": "../system.json"}, "names ../system.json, which is outside"),
        ("run", {"workload": "a", "system": "away/x.json"}, "names away/x.json, which is outside"),
        ("run", {"workload": "a", "network": "~/x.yml"}, "names ~/x.yml, which is outside"),
        ("run", {"workload": "a", "network_model": "mine.py"}, "names a program, mine.py"),
        ("run", {"workload": "a", "network_model": "os.path"}, "names a program, os.path"),
        ("run", {"workload": "a", "compute_model": "x"}, "there is no argument 'compute_model'"),
        ("run", {"workload": "--out=/tmp"}, "give a value that does not begin with -"),
        ("run", {"workload": "a", "netwrk": "b"}, "did you mean 'network'"),
    ],
)
def test_files_outside_programs_and_unknown_arguments_are_refused(
    name: str, given: dict[str, Any], cause: str, tmp_path: Path
) -> None:
    (tmp_path / "away").symlink_to(tmp_path.parent)
    with pytest.raises(UsageError) as refused:
        words_of(declared(name), given, tmp_path)
    assert cause in str(refused.value)


def test_words_of_a_call_are_those_of_the_command_line(tmp_path: Path) -> None:
    given = {"workload": "job", "machine": "h100-dgx:8", "fold": False, "detail": ["links", "path"]}
    words = words_of(declared("run"), given, tmp_path)
    assert sorted(words) == sorted(
        ["--json", "--machine=h100-dgx:8", "--no-fold", "--detail=links", "--detail=path", "job"]
    )
    assert words[-1] == "job"


def test_schemas_state_types_choices_defaults_and_required_arguments() -> None:
    schema = schema_of(declared("make"))
    assert set(schema["required"]) == {"kind", "output"}
    assert schema["properties"]["ranks"]["type"] == "integer"
    assert schema["properties"]["bytes"]["type"] == ["string", "number"]
    assert schema["properties"]["repeat"]["default"] == 1
    assert "gpipe" in schema["properties"]["schedule"]["enum"]


def test_every_tool_is_a_command() -> None:
    commands = {name for group in COMMANDS.values() for name in group}
    assert set(TOOLS) <= commands


def test_a_folder_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve-tools", "--folder", "nowhere/at/all"]) == 2
    assert "there is no folder nowhere/at/all" in capsys.readouterr().err


def test_the_text_of_a_switch_that_is_on_says_what_false_does() -> None:
    fold = schema_of(declared("run"))["properties"]["fold"]
    assert fold == {"type": "boolean", "description": "false: simulate every rank by itself", "default": True}
