#!/usr/bin/env bash
# Equality tests and benchmark of the CUDA backend on the GPU of this machine, in under five minutes.
# Prints everything and writes it to the file $1 (default: gpu.txt in $OUT, or in the working directory).
# Needs a torch built for CUDA and: pip install -e ".[cuda,test]"
set -uo pipefail
output=$(realpath -m "${1:-${OUT:-.}/gpu.txt}")
mkdir -p "$(dirname "$output")"
cd "$(dirname "$0")/../.."
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1
    timeout 200 python -m pytest tests/gpu -q -rs --durations=5 -p no:cacheprovider
    tests=$?
    timeout 80 python -m tests.gpu.benchmark
    benchmark=$?
    echo "tests exited with $tests, the benchmark with $benchmark"
    exit $((tests ? tests : benchmark))
} 2>&1 | tee "$output"
