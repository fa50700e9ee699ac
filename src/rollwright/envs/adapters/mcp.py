"""Tools of servers that speak the Model Context Protocol, each episode with a server of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from rollwright.envs.adapters._need import need
from rollwright.envs.tool_env import ToolEnvironment, ToolError
from rollwright.envs.tools import Effect, Tool
from rollwright.errors import EnvironmentFault

Finish = Callable[[int, str], float | None]


class McpServer:
    """A connection to one server; every wait has a limit.

    Args:
        command: starts the server, which talks over its standard input and output; or its address.
        seconds: until the server must have started, and have answered a call.
        variables: more environment variables for it.

    Raises:
        EnvironmentFault: it does not start, or does not speak the protocol.
    """

    def __init__(
        self, command: Sequence[str] | str, seconds: float = 30.0, variables: Mapping[str, str] | None = None
    ) -> None:
        mcp = need("mcp", "mcp")
        from anyio.from_thread import start_blocking_portal

        self.command, self.seconds = command, seconds
        target: Any = command
        if not isinstance(command, str):
            first, *rest = command
            target = mcp.StdioServerParameters(command=first, args=rest, env=dict(variables or {}) or None)
        self._stack = ExitStack()
        try:
            self._portal = self._stack.enter_context(start_blocking_portal())
            client = mcp.Client(target, read_timeout_seconds=seconds)
            opened: AbstractContextManager[Any] = self._portal.wrap_async_context_manager(client)
            self._client = self._stack.enter_context(opened)
        except BaseException as error:
            self._stack.close()
            raise self._fault("does not start", error) from error

    def tools(self) -> tuple[Tool, ...]:
        """Return the server's tools. Only what it calls read-only is taken to be so.

        Raises:
            EnvironmentFault: it does not answer.
        """
        listed = self._ask("does not list its tools", self._client.list_tools).tools
        return tuple(_tool(tool) for tool in listed)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the text of a tool's answer.

        Raises:
            ToolError: the tool says that it failed.
            EnvironmentFault: the server does not answer.
        """
        what = f"does not answer a call of {name}"
        result = self._ask(what, lambda: self._client.call_tool(name, dict(arguments)))
        text = "\n".join(_text(part) for part in result.content)
        if result.is_error:
            raise ToolError(text)
        return text

    def close(self) -> None:
        """End the connection, and the server if it was started here."""
        self._stack.close()

    def _ask(self, what: str, question: Callable[[], Any]) -> Any:
        import anyio

        async def ask() -> Any:
            with anyio.fail_after(self.seconds):
                return await question()

        try:
            return self._portal.call(ask)
        except Exception as error:  # the protocol's errors, time-outs, a server that is gone
            raise self._fault(what, error) from error

    def _fault(self, what: str, error: BaseException) -> EnvironmentFault:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        name = self.command if isinstance(self.command, str) else " ".join(self.command)
        return EnvironmentFault(f"the server {name!r} {what}: {type(error).__name__} {error}".rstrip())


class McpEnvironment(ToolEnvironment):
    """A dialogue with the tools of one server.

    The server's state is its own, so an episode that branches is played again on a new server. Where
    all tools are read-only there is nothing to play again; give ``forking="copy"`` to share the server.

    Args:
        command: as of `McpServer`.
        question: what is asked, by seed.
        finish: (seed, final answer) -> reward, or None for not scored.
        tool_format: how the model writes calls.
        seconds, variables: as of `McpServer`.
    """

    forking = "replay"

    def __init__(
        self,
        command: Sequence[str] | str,
        question: Callable[[int], str],
        finish: Finish | None = None,
        tool_format: str = "hermes",
        seconds: float = 30.0,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.command, self.question, self.finished = command, question, finish
        self.tool_format, self.seconds, self.variables = tool_format, seconds, variables
        self.seed = 0
        self._server: McpServer | None = None
        self._tools: tuple[Tool, ...] | None = None

    @property
    def server(self) -> McpServer:
        """The server, started when it is first needed."""
        if self._server is None:
            self._server = McpServer(self.command, self.seconds, self.variables)
        return self._server

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        if self._tools is None:
            self._tools = self.server.tools()
        return self._tools

    def start(self, seed: int) -> str:
        self.seed = seed
        return self.question(seed)

    def call(self, tool: Tool, arguments: dict[str, Any]) -> str:
        return self.server.call(tool.name, arguments)

    def finish(self, answer: str) -> float | None:
        return None if self.finished is None else self.finished(self.seed, answer)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


def _tool(tool: Any) -> Tool:
    is_read = bool(tool.annotations and tool.annotations.read_only_hint)
    effect = Effect.READ if is_read else Effect.CHANGE
    return Tool(tool.name, tool.description or "", tool.input_schema, effect)


def _text(part: Any) -> str:
    """Return a part of an answer as text; a model of texts is told what else there is."""
    text = getattr(part, "text", None)
    return str(text) if text is not None else f"[{part.type}]"
