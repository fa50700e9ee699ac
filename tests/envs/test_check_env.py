"""`check-env`: each check finds the environment that breaks just its law, and passes the right one."""

from __future__ import annotations

import itertools
import json

import pytest
from env_help import WALKS, CopiedWalk, OwnWalk, Walk

from rollwright.cli.main import main
from rollwright.envs import Effect, Observation, Tool
from rollwright.envs.check import CHECKS, check_env
from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.tasks.lake import Lake
from rollwright.tasks.registry import load_task

NOISE = itertools.count()


def problems(build, **options):
    """Return what is wrong by check; notes count too."""
    report = check_env(build, **options)
    return {finding.check: finding.problem for finding in report.findings if finding.problem is not None}


@pytest.mark.parametrize("make", WALKS)
def test_a_right_environment_passes(make):
    """Oracle: the branches are held against a fresh replay elsewhere. Broken by: a check that cries wolf."""
    report = check_env(make)
    assert report.is_right and (report.num_episodes, report.num_turns > 10) == (4, True)
    assert [finding.check for finding in report.findings] == list(CHECKS)
    assert {f.check for f in report.findings if f.skipped} == {"processes", "tools"}


class Silent(Walk):
    def reset(self, seed):
        super().reset(seed)
        return ""


class Tuples(Walk):
    def step(self, turn):
        seen = super().step(turn)
        return seen.text, seen.reward, seen.terminated, seen.truncated, {}


class Raises(Walk):
    def step(self, turn):
        return super().step({"+": "+", "-": "-", "?": "?"}[turn])


class Unseeded(CopiedWalk):
    def reset(self, seed):
        return super().reset(next(NOISE))


class OneSeed(CopiedWalk):
    def reset(self, seed):
        return super().reset(0)


class Dice(CopiedWalk):
    """The seed is kept; the dice are not its own."""

    def step(self, turn):
        seen = super().step(turn)
        return Observation(f"{next(NOISE)} {seen.text}", seen.terminated, seen.truncated, seen.reward)


class Shared(CopiedWalk):
    """A copy shares its place with the first."""

    places = {0: 0}

    def reset(self, seed):
        text = super().reset(seed)
        self.places[0] = self.place
        return text

    def step(self, turn):
        self.place = self.places[0]
        seen = super().step(turn)
        self.places[0] = self.place
        return seen


class Aliased(Walk):
    """The snapshot is the very list that the environment goes on to change."""

    forking = "own"

    def reset(self, seed):
        self.path = [seed]
        return super().reset(seed)

    def step(self, turn):
        self.path.append(turn)
        return super().step(turn)

    def snapshot(self):
        return self.path, super().snapshot()

    def restore(self, state):
        self.path, rest = state
        super().restore(rest)


class Forgetful(OwnWalk):
    """The dice are not restored."""

    def snapshot(self):
        return (*super().snapshot()[:2], 5)


class Constant(OwnWalk):
    def signature(self):
        return "one"


class Address(CopiedWalk):
    def signature(self):
        return str(id(self))


class Both(Walk):
    def seen(self, text):
        seen = super().seen(text)
        return Observation(seen.text, seen.terminated, seen.terminated or seen.truncated, seen.reward)


class Limit(CopiedWalk):
    """Its own limit on turns is called an end."""

    max_turns = 3

    def seen(self, text):
        return Observation(text, terminated=self.num == 3, reward=1.0)

    def sample_turn(self, rng):
        return "+-"[int(rng.integers(2))]


class Repeats(Walk):
    """Each observation tells the whole story."""

    def reset(self, seed):
        self.story = super().reset(seed)
        return self.story

    def step(self, turn):
        seen = super().step(turn)
        self.story += turn + seen.text
        return Observation(self.story, seen.terminated, seen.truncated, seen.reward)


class Templated(Walk):
    def seen(self, text):
        return super().seen(f"<|im_start|>user\n{text}")


class Tools(OwnWalk):
    tools = (Tool("look", effect=Effect.READ), Tool("go", effect=Effect.CHANGE))
    tool_format = "pythonic"

    def step(self, turn):
        return super().step({"[look()]": "x", "[go()]": "+"}.get(turn, "x"))

    def sample_turn(self, rng):
        return ("[look()]", "[go()]")[int(rng.integers(2))]

    def signature(self):
        return str(self.place)


class Steals(Tools):
    def step(self, turn):
        return OwnWalk.step(self, "-" if turn == "[look()]" else "+")


BROKEN = [
    (Silent, "task", "expected text"),
    (Tuples, "answers", "expected an Observation"),
    (Raises, "answers", "KeyError: 'x' (line"),
    (Unseeded, "seeds", "and then"),
    (OneSeed, "seeds", "do they differ at all"),
    (Dice, "determinism", "was answered by"),
    (Shared, "fork", "back at turn"),
    (Aliased, "fork", "changed the state"),
    (Forgetful, "fork", "by the environment alone"),
    (Constant, "signature", "one signature"),
    (Address, "seeds", "begins in another state"),
    (Both, "end", "terminated and truncated at once"),
    (Limit, "end", "a limit would be truncated"),
    (Repeats, "new text", "begins with what was said before"),
    (Templated, "new text", "<|im_start|>"),
    (Steals, "tools", "calls only look"),
]


class NoServer(Walk):
    def reset(self, seed):
        raise RuntimeError("no server")


class Leaves(Walk):
    def step(self, turn):
        raise SystemExit(0)


class Needs(Walk):
    def __init__(self, server):
        pass


def test_an_environment_that_raises_or_leaves_is_a_finding():
    """Oracle: how it was broken. Broken by: letting SystemExit(0) through: exit code 0."""
    assert problems(NoServer, num=1)["task"].startswith("RuntimeError: no server")
    assert problems(Leaves, num=1)["answers"].endswith("test_check_env.py)")
    with pytest.raises(ConfigError, match=r"cannot be made: TypeError.*'server'"):
        check_env(Needs)


@pytest.mark.parametrize(("make", "check", "says"), BROKEN, ids=[make.__name__ for make, *_ in BROKEN])
def test_each_check_finds_what_breaks_it(make, check, says):
    """Oracle: how the environment was broken. Broken by: leaving the check out."""
    found = problems(make, num=4)
    assert check in found and says in found[check], found
    assert set(found) == {check}, found


def test_tools_that_only_look():
    """Oracle: by hand; the right twin of the thief passes, and the check was asked."""
    report = check_env(Tools)
    assert report.is_right and not next(f for f in report.findings if f.check == "tools").skipped


class Endless(Lake):
    def step(self, state, text):
        try:
            return super().step(state, text)
        except EnvironmentFault:
            return state, Observation("still here\n")


class Judge(Lake):
    def grade(self, task_id, state, turns, truncated):
        from dataclasses import replace

        verdict = super().grade(task_id, state, turns, truncated)
        return replace(verdict, score=float("nan") if turns else None)


def test_tasks_are_checked_too():
    """Oracle: how the task was broken. Broken by: checks that only hold for adapters."""

    def like(cls, **more):
        task = load_task("lake", **more)
        return cls(task.size, task.holes, task.slip, task.max_turns, task.num_train, task.num_test)

    assert problems(lambda: load_task("lake")) == {}
    assert problems(lambda: load_task("lake", slip=0.3)) == {}
    assert "takes a step after its end" in problems(lambda: like(Endless), num=8)["end"]
    assert "score is nan" in problems(lambda: like(Judge))["grade"]
    with pytest.raises(ConfigError, match="a dict was made"):
        check_env(dict)


FILE = """
from rollwright.envs import Observation

class Names:
    '''Says the members of a set in the order of this process.'''
    max_turns = 4

    def reset(self, seed):
        self.names = set("abcdefghij"[seed % 3:])
        return "names\\n"

    def step(self, turn):
        return Observation({order} + "\\n", reward=0.0)
"""


def test_another_process(tmp_path, capsys):
    """Oracle: the order of a set of texts hangs on the hash seed. Broken by: asking in this process only."""
    (tmp_path / "bad.py").write_text(FILE.replace("{order}", "''.join(self.names)"))
    (tmp_path / "good.py").write_text(FILE.replace("{order}", "''.join(sorted(self.names))"))
    assert main(["check-env", f"{tmp_path}/bad.py:Names", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    wrong = [finding for finding in report["findings"] if finding["problem"]]
    assert [finding["check"] for finding in wrong] == ["processes"] and " there" in wrong[0]["problem"]
    assert main(["check-env", f"{tmp_path}/good.py:Names"]) == 0
    assert "names: 4 episodes, 16 turns; all is well" in capsys.readouterr().out


def test_the_command(capsys):
    """Oracle: exit codes. Broken by: exit code 0 for a name that does not exist."""
    assert main(["check-env", "sums", "--num", "1"]) == 0
    assert "it has one turn" in capsys.readouterr().out
    assert main(["check-env", "lkae"]) == 2
    assert main(["check-env", "lake", "--num", "0"]) == 2
