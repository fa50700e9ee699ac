"""The command line: `rollwright COMMAND ...`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnknownCommandError, UnknownOptionError, UnusedCliTokensError

# Their modules import nothing heavy: torch and the like come when a command runs.
from rollwright.cli.chat import chat
from rollwright.cli.check import check
from rollwright.cli.check_env import check_env
from rollwright.cli.compare import compare
from rollwright.cli.convert import export, import_
from rollwright.cli.demo import demo
from rollwright.cli.diagnose import diagnose
from rollwright.cli.evaluate import evaluate
from rollwright.cli.grade import grade
from rollwright.cli.methods import methods
from rollwright.cli.replay import replay
from rollwright.cli.rescore import rescore
from rollwright.cli.sandbox import sandbox
from rollwright.cli.serve import serve
from rollwright.cli.show import show
from rollwright.cli.simulate import simulate
from rollwright.cli.tasks import tasks
from rollwright.cli.timeline import timeline
from rollwright.cli.train import train
from rollwright.cli.view import view
from rollwright.cli.warmstart import warmstart
from rollwright.cli.why import why
from rollwright.errors import ConfigError, RollwrightError, UnknownName

_COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "train": train,
    "compare": compare,
    "show": show,
    "view": view,
    "diagnose": diagnose,
    "check": check,
    "import": import_,
    "export": export,
    "rescore": rescore,
    "why": why,
    "timeline": timeline,
    "simulate": simulate,
    "eval": evaluate,
    "grade": grade,
    "serve": serve,
    "chat": chat,
    "methods": methods,
    "tasks": tasks,
    "check-env": check_env,
    "sandbox": sandbox,
    "warmstart": warmstart,
    "replay": replay,
}
_ALIASES = {"eval": ("evaluate",)}

app = App(
    name="rollwright",
    help="RL rollouts that compose, are compared at equal budget, and account for every token.",
    version=version("rollwright"),
    help_format="markdown",
    help_epilogue=(
        "Exit codes: 0 done, 1 it failed (the message says why; `--debug` shows where), 2 the command or a "
        "setting is wrong, 130 stopped by Ctrl-C."
    ),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
for _order, (_name, _function) in enumerate(_COMMANDS.items()):
    app.command(_function, name=(_name, *_ALIASES.get(_name, ())), sort_key=_order)


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        tokens: the words after ``rollwright``; None takes them from the process.

    Returns:
        0 done, 1 it failed, 2 the command or a setting is wrong, 130 stopped.
    """
    words = list(sys.argv[1:] if tokens is None else tokens)
    is_debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        result = app(words, exit_on_error=False, print_error=False)
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _fail(_usage(error), error, 2, is_debug)
    except RollwrightError as error:
        return _fail(str(error), error, 2 if isinstance(error, ConfigError) else 1, is_debug)
    except KeyboardInterrupt:
        return _fail("stopped", None, 130, False)
    except BrokenPipeError:
        # The reader (head, less) has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _fail(message: str, error: Exception | None, code: int, is_debug: bool) -> int:
    if is_debug and error is not None:
        traceback.print_exception(error)
    print(f"rollwright: {message}", file=sys.stderr)
    return code


def _usage(error: CycloptsError) -> str:
    """Return a parse error in the words of our own errors."""
    command = " ".join(error.command_chain or ())
    if isinstance(error, UnknownOptionError):
        flags = [name for argument in error.argument_collection if argument.parse for name in argument.names]
        given = error.token.keyword or error.token.value
        kind = f"flag of `rollwright {command}`" if command else "flag"
        return str(UnknownName(kind, given, [name for name in flags if name.startswith("--")]))
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        return str(UnknownName("command", error.unused_tokens[0], _COMMANDS))
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        words = ", ".join(map(repr, error.unused_tokens))
        return f"`rollwright {command}` does not know what to do with {words}; see its --help"
    error.verbose = False
    return f"{error} (see `{' '.join(filter(None, ('rollwright', command)))} --help`)"


if __name__ == "__main__":
    sys.exit(main())
