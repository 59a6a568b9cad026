#!/usr/bin/env bash
# Confirms on a real GPU what the emulator cannot: results of the shipped cubins, speed, and the property map.
#
#   scripts/gpu_check.sh prepare FOLDER [TARGET...]   anywhere with a compiler: builds packages into FOLDER
#   scripts/gpu_check.sh run FOLDER                   on the GPU machine: checks, times and probes; results go to ${OUT:-gpu-out}
#
# TARGET defaults to cuda (every generation with a map). MODELS names models of the catalogue. Each step of `run` has a time limit and a
# log; a failed step does not stop the others; the status is 1 if any failed. The GPU's settings are left alone.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$here/.venv/bin/python}
models=${MODELS:-resnet_small mobilenet_v2_small unet_small bert_small vit_small bert_small_f16}
device=${DEVICE:-cuda:0}

prepare() {
    local folder=$1 failed=0 name
    shift
    mkdir -p "$folder"
    local targets=()
    for target in "${@:-cuda}"; do targets+=(--target "$target"); done
    for name in $models; do
        "$python" "$here/scripts/models.py" build "$name" -o "$folder/$name.onnx" &&
            "$python" -m unistack_aot "$folder/$name.onnx" -o "$folder/$name.pkg" "${targets[@]}" || failed=1
    done
    return $failed
}

# step NAME SECONDS COMMAND...: runs with a limit, keeps the log, adds a line to the summary.
step() {
    local name=$1 limit=$2 status=0 started=$SECONDS
    shift 2
    timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.log" 2>&1 || status=$?
    printf '%s\t%s\t%ss\n' "$name" "$status" $((SECONDS - started)) | tee -a "$OUT/summary.tsv"
    [ "$status" -eq 0 ] || failures=$((failures + 1))
}

run() {
    local folder=$1 package name
    OUT=${OUT:-gpu-out}
    failures=0
    mkdir -p "$OUT"
    printf 'step\tstatus\tseconds\n' >"$OUT/summary.tsv"
    nvidia-smi -q >"$OUT/nvidia-smi.txt" 2>&1
    step doctor 60 "$python" -m unistack_aot doctor
    for package in "$folder"/*.pkg; do
        name=$(basename "$package" .pkg)
        step "selftest-$name" 120 "$python" -m unistack_aot run "$package" --device "$device" --selftest
        step "check-$name" 180 "$python" -m unistack_aot check "$folder/$name.onnx" "$package" --device "$device" --no-bisect
        step "time-$name" 120 "$python" -m unistack_aot run "$package" --device "$device" --time --json
    done
    step probe 400 "$python" -m unistack_aot probe --device "$device" -o "$OUT/probe.json"
    step peers 120 "$python" "$here/scripts/gpu_peers.py" --out "$OUT/peers.json"
    step device-tests 300 "$python" -m pytest -q -m gpu "$here/tests"
    echo "$failures failed; results in $OUT"
    [ "$failures" -eq 0 ]
}

case "${1:-}" in
    prepare) [ $# -ge 2 ] && shift && prepare "$@" ;;
    run) [ $# -eq 2 ] && run "$2" ;;
    *)
        sed -n '2,8p' "$0"
        exit 2
        ;;
esac
