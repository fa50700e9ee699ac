"""The viewer's server over real sockets: who gets in, what comes out, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import rollwright.view
from rollwright.cli.main import main
from rollwright.lab.summary import summarise
from rollwright.view.app import POLICY
from rollwright.view.run import Run, open_runs
from rollwright.view.server import Viewer

STATIC = Path(rollwright.view.__file__).parent / "static"


@pytest.fixture(scope="module")
def viewer(toy_path: Path, hostile_path: Path) -> Iterator[Viewer]:
    with Viewer(open_runs([toy_path, hostile_path])).running() as viewer:
        yield viewer


@pytest.fixture(scope="module")
def client(viewer: Viewer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=viewer.url, timeout=30) as client:
        yield client


def get(client: httpx.Client, path: str, **params: object) -> object:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["", "style.css", "main.js", "api/runs", "api/runs/0/rows"])
def test_only_who_knows_the_address_gets_in(viewer: Viewer, client: httpx.Client, path: str):
    """Oracle: hand. Kills: a path that no token guards, a Host that another site's name may take."""
    right = viewer.url + path
    assert client.get(right).status_code == 200
    for wrong in (f"http://127.0.0.1:{viewer.port}/{path}", right.replace(viewer.token, viewer.token[:-1]),
                  right.replace(viewer.token, "%2e%2e")):  # fmt: skip
        assert client.get(wrong).status_code == 403
    for host in ("evil.example", f"evil.example:{viewer.port}", "127.0.0.1", ""):
        assert client.get(right, headers={"host": host}).status_code == 403
    assert client.get(right, headers={"host": f"localhost:{viewer.port}"}).status_code == 200
    assert client.post(right).status_code == 405


def test_every_viewer_has_another_long_token(viewer: Viewer, toy: Run):
    """Oracle: hand. Kills: a fixed or a short token."""
    other = Viewer([])
    assert len(viewer.token) >= 24 and other.token != viewer.token
    assert other._socket.getsockname()[0] == "127.0.0.1"
    other._socket.close()


@pytest.mark.parametrize("path", ["", "main.js", "api/runs", "nothing.js"])
def test_every_answer_has_the_policy(client: httpx.Client, path: str):
    """Oracle: hand. Kills: scripts, styles or connections from elsewhere; an answer without the headers."""
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert "'unsafe" not in POLICY and "script-src 'self';" in POLICY and "default-src 'none'" in POLICY
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


@pytest.mark.parametrize("path", ["../app.py", "..%2fapp.py", "%2e%2e%2fapp.py", ".hidden.js", "api", "x/y",
                                  "..%5capp.py", "app.py"])  # fmt: skip
def test_static_files_are_those_of_the_page_only(viewer: Viewer, client: httpx.Client, path: str):
    """Oracle: hand. Kills: a path out of the folder."""
    answer = client.get(viewer.url + path)
    assert answer.status_code in (403, 404) and "import" not in answer.text


def test_no_asset_from_outside_and_no_markup_from_text():
    """Oracle: the sources. Kills: an address of another host, or any way from text to markup."""
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        for word in ("http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                     "eval(", "new Function", "srcdoc", "createContextualFragment", "DOMParser"):  # fmt: skip
            assert word not in text, f"{file.name} has {word}"


def test_every_module_that_the_page_imports_is_there():
    """Oracle: the files. Kills: a module that was renamed; package data without the folder."""
    import re

    for file in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([\w.]+)"', file.read_text()):
            assert (STATIC / name).is_file(), f"{file.name} imports {name}"


def test_the_overview_says_what_show_says(client: httpx.Client, toy_path: Path):
    """Oracle: another implementation, `rollwright show`. Kills: a share over rollouts instead of groups."""
    found = get(client, "api/runs/0/overview")
    summary = summarise(toy_path)
    assert found["state"] == summary.state == "finished" and found["text"] == summary.state_text
    wanted = [[p.step, p.success, p.low, p.high] for p in summary.curve]
    assert len(found["success"]) == len(wanted)
    for got, want in zip(found["success"], wanted, strict=True):
        assert got == pytest.approx(want)
    fates = {fate: num for fate, num in summary.books.fates.items() if num}
    assert found["ledger"]["fates"] == fates and sum(fates.values()) > 0
    lengths = summary.lengths[:, 1]
    width = found["lengths"]["width"]
    slow: dict[int, int] = {}
    for value in lengths.tolist():
        slow[value // width * width] = slow.get(value // width * width, 0) + 1
    assert {bin[0]: bin[1] + bin[2] for bin in found["lengths"]["bins"]} == slow
    assert found["num_rollouts"] == len(lengths)


def test_series_are_the_rows_of_metrics(client: httpx.Client, toy: Run):
    """Oracle: the file's rows."""
    found = get(client, "api/runs/0/series", name=["reward_mean", "length_mean"])
    assert found["reward_mean"] == [[row["step"], row["reward_mean"]] for row in toy.steps]
    assert len(found["length_mean"]) == 5
    assert get(client, "api/runs/0/series", name="no_such") == {"no_such": []}


def test_numbers_that_are_not_finite_are_words(odd: Run):
    """Oracle: hand. Kills: NaN that becomes null, which reads as not measured."""
    from rollwright.view.app import plain

    assert plain({"a": [float("nan"), (float("-inf"), 1.5, None, True)], 3: Path("x")}) == {
        "a": ["nan", ["-inf", 1.5, None, True]], "3": "x",
    }  # fmt: skip


def test_every_page_of_data_answers(client: httpx.Client):
    """Oracle: hand. The second run's own ids, by the paths that a page asks for."""
    assert [run["name"] for run in get(client, "api/runs")] == ["run", "run"]
    rows = get(client, "api/runs/1/rows", table="groups", limit=10)
    assert rows["total"] == 4 and rows["columns"][:3] == ["kind", "step", "group_index"]
    assert ["reward", "DOUBLE"] in get(client, "api/runs/1/columns", table="rollouts")
    assert len(get(client, "api/runs/1/group/train/0/0")["nodes"]) == 7
    name = "rooms/train/0#0/1.0"
    assert get(client, "api/runs/1/group/train/0/0/node", name=name)["node"] == name
    assert get(client, "api/runs/1/rollout/train/0/1/1")["index"] == 1
    pair = get(client, "api/diff", a="1/train/0/0/0", b="1/train/1/0/0")
    assert pair["first_difference"] is None  # step 1's tree says the same as step 0's


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("api/runs/7", "there is no run 7"),
        ("api/runs/0/group/train/99/0", "there is no group 0 of train step 99"),
        ("api/runs/0/rows?where=reward%20%3D", "is no condition"),
        ("api/runs/0/rows?limit=many", "expected a number"),
        ("api/runs/0/rows?table=secrets", "unknown list 'secrets'"),
        ("api/runs/0/columns", "lacks 'table'"),
        ("api/diff?a=1&b=2", "names no rollout"),
        ("api/runs/1/timeline?since=x", "expected a number"),
    ],
)
def test_what_cannot_be_answered_is_said_in_words(client: httpx.Client, path: str, words: str):
    """Oracle: hand. Kills: a traceback, or a 500 that says nothing."""
    answer = client.get(path)
    assert answer.status_code == 400 and words in answer.json()["error"]


def test_a_run_without_a_journal_has_no_timeline(client: httpx.Client):
    """Oracle: hand."""
    assert "no journal" in get(client, "api/runs/1/timeline")["missing"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "RUNS"),
        (("nowhere",), 1, "is no run folder"),
        (("{run}", "--port", "99999"), 2, "--port is 99999; expected 0 to 65535"),
        (("{run}", "--tui"), 2, "needs a terminal"),
    ],
)
def test_the_command_refuses_in_words(
    toy_path: Path, capsys, words: tuple[str, ...], code: int, message: str
):
    """Oracle: hand. Kills: a traceback, a server for nothing."""
    given = [word.format(run=toy_path) for word in words]
    assert main(["view", *given]) == code
    assert message.lower() in capsys.readouterr().err.lower()


def test_a_port_that_is_taken_is_said(viewer: Viewer, toy_path: Path, capsys):
    """Oracle: hand."""
    assert main(["view", str(toy_path), "--no-browser", "--port", str(viewer.port)]) == 2
    assert "choose another with --port" in capsys.readouterr().err


def test_a_damaged_shard_is_named_before_anything_is_served(tmp_path: Path, hostile_path: Path, capsys):
    """Oracle: hand. Kills: an open page that answers every question with an error."""
    import shutil

    run = shutil.copytree(hostile_path, tmp_path / "damaged")
    file = next((run / "shards").glob("*/trajectories.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    assert main(["view", str(run), "--no-browser"]) == 1
    assert "cannot be read" in capsys.readouterr().err
