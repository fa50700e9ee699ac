"""`rollwright serve` as a command, and a run over HTTP that meets a dying server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import httpx
import pytest

from rollwright.cli.main import main


@pytest.mark.parametrize(
    "words, message",
    [
        (["--host", "0.0.0.0"], "give --api-key"),
        (["--host", "example.com"], "give --api-key"),
        (["--max-batch", "0"], "--max-batch is 0"),
        (["--max-waiting", "-1"], "--max-waiting is -1"),
        (["--timeout", "0"], "above 0"),
        (["--prot", "1"], "did you mean '--port'"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_loaded(words, message, capsys):
    """Hand: exit code 2 and what to do."""
    assert main(["serve", "countdown", *words]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_model_is_refused(capsys):
    """Hand: the names that exist are listed."""
    assert main(["serve", "nothing"]) != 0
    assert "countdown" in capsys.readouterr().err


def test_it_serves_and_ends_with_ctrl_c():
    """Hand: it says where it listens, answers, and ends with 130 within its grace."""
    command = [
        sys.executable,
        "-m",
        "rollwright.cli.main",
        "serve",
        "countdown",
        "--port",
        "0",
        "--threads",
        "1",
    ]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    try:
        line = process.stderr.readline()
        url = re.search(r"http://\S+/v1", line)
        assert url and line.startswith("countdown at "), line
        body = {"prompt": "3 4 +-*:12\n", "max_tokens": 4}
        answer = httpx.post(f"{url[0]}/completions", json=body, timeout=60, trust_env=False, verify=False)
        assert answer.status_code == 200 and answer.json()["model"] == "countdown"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
