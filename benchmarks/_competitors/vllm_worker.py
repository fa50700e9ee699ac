"""vLLM behind a pipe: run by the python of the environment that `make_vllm_env.sh` makes.

python vllm_worker.py MODEL_FOLDER MAX_BATCH CONTEXT

Reads one workload a line, ``{"prompts": [[int]], "lengths": [int]}``, and answers each with one line,
``{"wall": seconds, "cpu": seconds, "made": int}``. vLLM's own output goes to the error stream.
"""

from __future__ import annotations

import json
import os
import sys
import time

pipe = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

# One process, so that nothing of vLLM's runs while another side is timed.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import LLM, SamplingParams  # noqa: E402


def main() -> None:
    folder, max_batch, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    engine = LLM(
        folder,
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=context,
        max_num_seqs=max_batch,
        enable_prefix_caching=False,
    )
    answer({"ready": True})
    for line in sys.stdin:
        workload = json.loads(line)
        prompts = [{"prompt_token_ids": ids} for ids in workload["prompts"]]
        params = [
            SamplingParams(temperature=1.0, min_tokens=n, max_tokens=n, ignore_eos=True, detokenize=False)
            for n in workload["lengths"]
        ]
        started = time.perf_counter(), time.process_time()
        outputs = engine.generate(prompts, params, use_tqdm=False)
        wall, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
        answer({"wall": wall, "cpu": cpu, "made": sum(len(out.outputs[0].token_ids) for out in outputs)})


def answer(value: dict[str, object]) -> None:
    print(json.dumps(value), file=pipe, flush=True)


if __name__ == "__main__":
    main()
