#!/usr/bin/env bash
# What one GPU does, in under 8 minutes: the CUDA tests, a minute of training in bfloat16, ours with and without CUDA graphs
# beside its peers.
#
#   benchmarks/gpu.sh [PYTHON]     such as: DRAGOMAN_DATA_MIRROR=/data benchmarks/gpu.sh .venv/bin/python
#
# Needs a CUDA build of PyTorch and .[dev,bench]. Writes to benchmarks/results/. Each part runs whatever became of the ones
# before, and has a time limit at which it is interrupted and says what it has; without a network, DRAGOMAN_DATA_MIRROR names
# a folder with the recipe's files.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
python=${1:-.venv/bin/python}
results=benchmarks/results
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
  echo 'gpu: PyTorch sees no GPU here' >&2
  exit 1
}
mkdir -p "$results"

failed=()
part() { # NAME SECONDS COMMAND…
  local name=$1 seconds=$2
  shift 2
  printf '── %s\n' "$name"
  timeout --signal INT --kill-after 5 "$seconds" "$@" 2>&1 | tee "$results/gpu-$name.txt" || failed+=("$name")
}

part machine 20 nvidia-smi
part tests 85 "$python" -m pytest -q -m gpu
# bfloat16 is what the recipe takes where the hardware has it.
part training 150 "$python" -m dragoman_model train recipes/tatoeba-en-de.toml --output "$scratch/en-de" \
  --device cuda --max-minutes 1
# One sentence at a time most of all waits for kernels to be launched: few sentences are enough there.
part engines 200 "$python" benchmarks/engines.py --device cuda --rounds 3 --slow-rounds 1 \
  --single-sentences 32 --slow-sentences 32 --batch-size 1 --batch-size 64 --batch-size 256 \
  --engine dragoman/bfloat16 --engine dragoman-operators/bfloat16 --engine dragoman/float32 \
  --engine ctranslate2/float16 --engine ctranslate2/float32 --engine huggingface/bfloat16 --json "$results/gpu-engines.json"

if ((${#failed[@]})); then
  printf 'gpu: failed: %s\n' "${failed[*]}" >&2
  exit 1
fi
