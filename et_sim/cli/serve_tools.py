"""`et-sim serve-tools`: offer commands as tools to assistants, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from et_sim.basics.declared_options import Command, Count
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.cli.tool_schemas import TOOLS, has_json, schema_of, words_of
from et_sim.version import __version__

MOST_BYTES = 1 << 20  # of an answer
SECONDS = 600
START = "import sys; from et_sim.cli import main; sys.exit(main())"
ABOUT = (
    "Simulate distributed training and serving. Usual order: `make` writes a workload, `run` simulates it on "
    "a machine such as h100-dgx:64 and writes a directory, `inspect` and `compare` read such directories, "
    "`explain` explains words of their output. All names of files are relative to one folder."
)


class Options(Command):
    """Offer commands as tools by the Model Context Protocol, on standard input and output. Every call runs in
    a process of its own in one folder, whose files it can read and write.
    """

    folder: Annotated[Path, "folder of all files that tools name"] = Path()
    seconds: Annotated[Count, f"the longest that a call may take (default: {SECONDS})"] = None


def run(options: Options) -> int:
    """Serve until the client ends the connection."""
    if not options.folder.is_dir():
        raise UsageError(f"there is no folder {options.folder}", remedy="make it, or name another one")
    server = server_of(options.folder.resolve(), options.seconds or SECONDS)
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    asyncio.run(serve())
    return 0


def server_of(folder: Path, seconds: int = SECONDS) -> Any:
    """Return the server of the tools of one folder."""
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ModuleNotFoundError:
        raise UsageError(
            "the SDK of the Model Context Protocol is not installed",
            remedy="install the extra: pip install 'et-sim[tools]'",
        ) from None

    async def list_tools(*_: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=" ".join((declared.__doc__ or declared.description).split()),
                    input_schema=schema_of(declared),
                    annotations=types.ToolAnnotations(read_only_hint=is_reading, open_world_hint=False),
                )
                for name, is_reading in TOOLS.items()
                for declared in (_declared(name),)
            ]
        )

    async def call_tool(_: Any, request: Any) -> Any:
        text, data, failed = await called(request.name, request.arguments or {}, folder, seconds)
        content: list[Any] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, structured_content=data, is_error=failed)

    return Server(
        "et-sim", version=__version__, instructions=ABOUT, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _declared(name: str) -> type[Command]:
    declared: type[Command] = import_module(f"et_sim.cli.{name}").Options
    return declared


async def called(
    name: str, given: dict[str, Any], folder: Path, seconds: int
) -> tuple[str, dict[str, Any] | None, bool]:
    """Return the text and the data of a call, and whether it failed."""
    if name not in TOOLS:
        return f"there is no tool {name!r} (there are {', '.join(TOOLS)})", None, True
    declared = _declared(name)
    try:
        words = words_of(declared, given, folder)
    except EtSimError as error:
        return str(error), None, True
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", START, name, *words),
        cwd=folder,
        env=os.environ | {"COLUMNS": "120"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        return f"{name} was ended after {seconds} s (give a smaller job, or start with --seconds)", None, True
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text, messages = output.decode(errors="replace"), _messages(errors.decode(errors="replace"))
    if len(output) > MOST_BYTES:
        return f"the answer has {len(output):,} bytes (narrow it: top, ranks or window)", None, True
    data = _data(text) if has_json(declared) else None
    return "\n".join(filter(None, (text.strip(), *messages))), data, process.returncode != 0


def _messages(text: str) -> list[str]:
    """Return warnings and errors without the lines of progress."""
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith("et-sim: error")), len(lines))
    warnings = [line for line in lines[:first] if line.startswith("et-sim: warning")]
    return [*warnings, *lines[first:]]


def _data(text: str) -> dict[str, Any] | None:
    """Return an answer as an object; a list becomes its rows."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else {"rows": content}
