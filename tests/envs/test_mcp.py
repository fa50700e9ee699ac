"""Tools of a real server that speaks the Model Context Protocol over its standard input and output."""

from __future__ import annotations

import os
import sys
import time

import pytest

from rollwright.envs import Effect, env_task
from rollwright.envs.adapters.mcp import McpEnvironment, McpServer
from rollwright.envs.check import check_env
from rollwright.envs.tool_env import ToolError
from rollwright.envs.tool_text import render_call
from rollwright.errors import EnvironmentFault

pytest.importorskip("mcp")

SERVER = """
import os, sys, time
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server, notes = MCPServer("notes"), []

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def count() -> str:
    '''How many notes there are.'''
    return f"{len(notes)} notes"

@server.tool()
def add(text: str, times: int = 1) -> str:
    '''Write a note.'''
    if not text:
        raise ToolError("a note has letters")
    notes.extend([text] * times)
    return f"{len(notes)} notes"

@server.tool()
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "done"

@server.tool()
def die() -> str:
    os._exit(3)

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def pid() -> str:
    return str(os.getpid())

server.run()
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    file = tmp_path_factory.mktemp("mcp") / "server.py"
    file.write_text(SERVER)
    return [sys.executable, str(file)]


def call(name, **arguments):
    return render_call(name, arguments, "hermes")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_server(command):
    """Oracle: the server's own code. Broken by: taking a tool for read-only that does not say so."""
    server = McpServer(command)
    try:
        tools = {tool.name: tool for tool in server.tools()}
        assert {name: tool.effect for name, tool in tools.items()} == {
            "count": Effect.READ,
            "add": Effect.CHANGE,
            "sleep": Effect.CHANGE,
            "die": Effect.CHANGE,
            "pid": Effect.READ,
        }
        assert tools["add"].description == "Write a note."
        assert tools["add"].complaint({"text": "a", "times": "b"}) and not tools["add"].complaint(
            {"text": "a"}
        )
        assert server.call("add", {"text": "é", "times": 2}) == "2 notes"
        assert server.call("count", {}) == "2 notes"
        with pytest.raises(ToolError, match="a note has letters"):
            server.call("add", {"text": ""})
        assert server.call("count", {}) == "2 notes", "a tool that failed leaves the server in order"
        pid = int(server.call("pid", {}))
        assert is_alive(pid)
    finally:
        server.close()
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid), "the server has to end with the connection"


@pytest.mark.slow
def test_servers_that_fail(command):
    """Oracle: the error tree and a clock. Broken by: waiting for ever."""
    with pytest.raises(EnvironmentFault, match="does not start"):
        McpServer(["/no/such/program"])
    with pytest.raises(EnvironmentFault, match="does not start"):
        McpServer([sys.executable, "-c", "print('hello')"], seconds=10)
    server = McpServer(command, seconds=5)
    try:
        start = time.monotonic()
        server.seconds = 0.3
        with pytest.raises(EnvironmentFault, match="does not answer a call of sleep"):
            server.call("sleep", {"seconds": 3})
        assert time.monotonic() - start < 3
    finally:
        server.close()
    server = McpServer(command, seconds=5)
    try:
        with pytest.raises(EnvironmentFault, match="does not answer a call of die"):
            server.call("die", {})
    finally:
        server.close()


@pytest.mark.slow
def test_an_environment(command):
    """Oracle: by hand. Broken by: a branch that goes on with the notes of the other one."""

    def make():
        return McpEnvironment(
            command, lambda seed: f"Question {seed}", lambda seed, answer: float(answer == "2")
        )

    task = env_task(make, "notes")
    try:
        assert "Question 0" in task.prompt("notes/train/0") and '"name": "add"' in task.prompt(
            "notes/train/0"
        )
        assert [tool.name for tool in task.tools] == ["count", "add", "sleep", "die", "pid"]
        start = task.reset("notes/train/0")
        one, seen = task.step(start, call("add", text="a"))
        assert "1 notes" in seen.text
        two, seen = task.step(one, call("add", text="b"))
        assert "2 notes" in seen.text
        other, seen = task.step(one, call("count"))
        assert "1 notes" in seen.text, "a branch from the first turn has one note"
        assert task.step(two, "2")[1].reward == 1.0 and task.step(other, "1")[1].reward == 0.0
        wrong = task.step(start, call("add", text=3))[1]
        assert "not of type 'string'" in wrong.text
    finally:
        task.close()


@pytest.mark.slow
def test_check_env_on_a_server(command):
    """Oracle: the checks, each of which is tested by itself."""

    class Played(McpEnvironment):
        max_turns = 2

        def __init__(self):
            super().__init__(command, lambda seed: f"Question {seed}", lambda seed, answer: 0.0)

        def sample_turn(self, rng):
            return [call("count"), call("add", text="a"), call("add")][int(rng.integers(3))]

    report = check_env(Played, num=1, max_turns=2)
    assert report.is_right, report.findings
