#!/usr/bin/env bash
# An OpenEnv server for the tests of its adapter, in an environment of its own: what it needs names an
# older version of a package that is used here.
set -eu
home="${ROLLWRIGHT_CACHE:-$HOME/.cache/rollwright}/openenv"
[ -x "$home/bin/python" ] && "$home/bin/python" -c "import openenv.core" 2>/dev/null && exit 0
"${PYTHON:-python3}" -m venv "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check "fastmcp>=3,<4" fastapi uvicorn websockets requests
"$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps openenv==0.10.0 typer openai huggingface_hub
"$home/bin/python" -c "import openenv.core"
