#!/usr/bin/env bash
# Confirms on a real GPU what the emulator cannot: results of the shipped machine code, speed, and the property map.
#
#   scripts/gpu_check.sh prepare FOLDER [TARGET...]   anywhere with a compiler: packages and Python wheels into FOLDER
#   scripts/gpu_check.sh run FOLDER                   on the GPU machine: checks, times and probes; results go to ${OUT:-gpu-out}
#
# TARGET defaults to cuda (every generation with a map). MODELS names models of the catalogue, one of each family of kernels by
# default; SIDE is the size of the matrices that are timed beside torch and CuPy. The GPU machine needs no network, and a compiler
# for the probes and for tuning only: what its Python lacks comes from FOLDER/wheels (pycuda for PYTHON_THERE, 3.12 by default; as
# a source, to be built there, if that Python is not here; WHEELS names the packages besides, all by default).
#
# `run` ends within BUDGET seconds (900 by default). Every step has a time limit and a log, and its results lie in OUT as soon as it
# ends: a step that fails, hangs or is left without time takes nothing from the others, and is a line of summary.tsv. Results are
# checked first, AT_ONCE packages at a time; what is timed runs alone. The status is 1 if any step failed. The GPU's settings are
# left alone.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
models=${MODELS:-resnet_small resnet_small_dynamic mobilenet_v3_small unet_small_linear detector_small bert_small bert_small_dynamic \
bert_small_f16 bert_small_int8 gpt2_small llama_small vit_small speech_small lstm_small_dynamic gru_small generator_small_scan \
resnet_int8_small}
halves=${HALVES:-resnet_small unet_small_linear bert_small vit_small}  # also with the matrix units, in f16
device=${DEVICE:-cuda:0}
there=${PYTHON_THERE:-3.12}
packages=${WHEELS:-numpy ml_dtypes onnx onnxruntime protobuf>=5 rich safetensors pytools mako setuptools matplotlib}
side=${SIDE:-4096}
budget=${BUDGET:-900}
at_once=${AT_ONCE:-4}
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}

prepare() {
    local folder=$1 failed=0 name precision
    local python=${PYTHON:-$here/.venv/bin/python}
    shift
    mkdir -p "$folder"
    local targets=()
    for target in "${@:-cuda}"; do targets+=(--target "$target"); done
    for name in $models; do
        "$python" "$here/scripts/models.py" build "$name" -o "$folder/$name.onnx" &&
            "$python" -m unistack_aot "$folder/$name.onnx" -o "$folder/$name.pkg" "${targets[@]}" || failed=1
        case " $halves " in
            *" $name "*) "$python" -m unistack_aot "$folder/$name.onnx" -o "$folder/$name.f16.pkg" "${targets[@]}" \
                --precision f16 || failed=1 ;;
        esac
    done
    "$python" "$here/scripts/gpu_peers.py" models "$folder/ops" --side "$side" || failed=1
    for name in "$folder"/ops/*.onnx; do
        for precision in $(cat "${name%.onnx}.precisions"); do
            "$python" -m unistack_aot "$name" -o "${name%.onnx}.$precision.pkg" "${targets[@]}" --precision "$precision" \
                --no-check --no-golden || failed=1
        done
    done
    [ -n "${NO_WHEELS:-}" ] || wheels "$folder/wheels" "$python" || failed=1
    return $failed
}

# What the runtime, the checker and the probes import, for another Python; pycuda has no wheels of its own.
wheels() {
    local out=$1 python=$2 version pycuda cuda other
    mkdir -p "$out"
    # shellcheck disable=SC2086  # several names
    "$python" -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$there" \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$out" $packages || return 1
    pycuda=$(sed -n 's/^PYCUDA=//p' "$here/scripts/setup.sh")
    cuda=$(cd "$(nvcc --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')" && pwd)
    for other in "python$there" "$HOME"/.pyenv/versions/"$there".*/bin/python3; do
        version=$("$other" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        [ "$version" = "$there" ] || continue
        ls "$out"/pycuda-"$pycuda"-*.whl >/dev/null 2>&1 ||
            "$here/scripts/pycuda_wheel.sh" "$other" "$pycuda" "$cuda" "$out"
        return
    done
    echo "no Python $there here: pycuda travels as a source"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary=:all: -d "$out" "pycuda==$pycuda"
}

# step NAME SECONDS COMMAND...: runs with a limit, that of the whole run too; keeps the log, adds a line to the summary.
step() {
    local name=$1 limit=$2 status=0 started=$SECONDS left=$((budget - SECONDS))
    shift 2
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -lt 3 ]; then
        status="no time left"
    else
        timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1 || status=$?
    fi
    noted "$name" "$status" "$started"
}

# noted NAME STATUS STARTED: a line of the summary.
noted() {
    printf '%s\t%s\t%ss\n' "$1" "$2" $((SECONDS - $3)) | tee -a "$OUT/summary.tsv"
}

# together NAME SECONDS COMMAND...: a step beside others, AT_ONCE of them.
together() {
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
    step "$@" &
}

# A folder of what this machine's Python lacks; what it has stays as it is.
install_site() {
    local folder=$1 missing=() wheel name source
    for wheel in "$folder"/wheels/*.whl; do
        [ -e "$wheel" ] || return 0
        name=$(basename "$wheel")
        "$python" -c 'import importlib.metadata as m, sys; m.version(sys.argv[1])' "${name%%-*}" 2>/dev/null || missing+=("$wheel")
    done
    [ ${#missing[@]} -eq 0 ] ||
        "$python" -m pip install --quiet --no-index --no-deps --target "$site" "${missing[@]}" || return 1
    for source in "$folder"/wheels/pycuda-*.tar.gz; do
        [ -e "$source" ] || continue
        "$python" -m pip install --quiet --no-index --no-deps --no-build-isolation --target "$site" "$source" || return 1
    done
}

# What is in OUT when the run ends, however it ends: the logs as one file, and a status.
finish() {
    tar -C "$logs" -czf "$OUT/logs.tar.gz" .
    local failures
    failures=$(awk -F'\t' 'NR > 1 && $2 != "0"' "$OUT/summary.tsv" | wc -l)
    echo "$failures of $(($(wc -l <"$OUT/summary.tsv") - 1)) steps failed after $SECONDS s; results in $OUT"
    [ "$failures" -eq 0 ]
}

# Results of every package against onnxruntime.
checks() {
    local folder=$1 package name
    for package in "$folder"/*.pkg; do
        name=$(basename "$package" .pkg)
        together "selftest-$name" 120 "$python" -m unistack_aot run "$package" --device "$device" --selftest
        together "check-$name" 180 "$python" -m unistack_aot check "$folder/${name%.f16}.onnx" "$package" --device "$device" \
            --no-bisect
    done
    for package in "$folder"/ops/*.pkg; do
        name=$(basename "$package" .pkg)
        together "op-check-$name" 120 "$python" -m unistack_aot check "$folder/ops/${name%.*}.onnx" "$package" \
            --device "$device" --no-bisect
    done
    wait
}

# Seconds of every package, and per kernel of single operations.
times() {
    local folder=$1 package name
    for package in "$folder"/*.pkg; do
        name=$(basename "$package" .pkg)
        step "time-$name" 60 "$python" -m unistack_aot run "$package" --device "$device" --time --json
    done
    for package in "$folder"/ops/*.pkg; do
        name=$(basename "$package" .pkg)
        step "op-$name" 60 "$python" -m unistack_aot run "$package" --device "$device" --profile --json
    done
}

# A short search for faster ways of a model's kernels, and whether the package that follows is right. Without a GPU the same search
# runs on the emulator, by a clock that stands for one.
tuning() {
    local folder=$1 level
    case $device in
        cuda*) ;;
        *) step tune 240 "$python" -m tests.build.tuned_emulator "$OUT"; return ;;
    esac
    level=$(nvidia-smi -i "${device#cuda:}" --query-gpu=compute_cap --format=csv,noheader | tr -d .)
    step tune 90 "$python" -m unistack_aot "$folder/bert_small.onnx" -o "$OUT/tuned.pkg" --target "cuda:sm_$level" --tune 45 \
        --tuning "$OUT/times" --no-check
    step tune-check 60 "$python" -m unistack_aot check "$folder/bert_small.onnx" "$OUT/tuned.pkg" --device "$device" --no-bisect
    step tune-time 60 "$python" -m unistack_aot run "$OUT/tuned.pkg" --device "$device" --time --json
}

# The profiler's counters of each kernel, to be held against the emulator's (`run --counters`): sectors per request, bank conflicts.
counters() {
    local folder=$1 package name metrics
    metrics=l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    metrics+=,l1tex__t_requests_pipe_lsu_mem_global_op_st.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
    metrics+=,l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum,dram__bytes.sum,gpu__time_duration.sum
    for name in resnet_small resnet_small.f16 bert_small bert_small.f16 lstm_small_dynamic; do
        package=$folder/$name.pkg
        [ -e "$package" ] || continue
        step "ncu-$name" 60 ncu --csv --log-file "$OUT/ncu-$name.csv" --metrics "$metrics" \
            "$python" -m unistack_aot run "$package" --device "$device"
    done
}

run() {
    local folder=$1
    python=${PYTHON:-python3}
    OUT=$(mkdir -p "${OUT:-gpu-out}" && cd "${OUT:-gpu-out}" && pwd)
    logs=$OUT-logs site=$OUT-site
    mkdir -p "$logs"
    export PYTHONPATH=$site:$PYTHONPATH
    printf 'step\tstatus\tseconds\n' >"$OUT/summary.tsv"
    trap 'finish; exit $?' EXIT
    trap 'exit 1' INT TERM
    nvidia-smi -q >"$OUT/nvidia-smi.txt" 2>&1
    install_site "$folder" >"$logs/wheels.log" 2>&1
    noted wheels $? 0
    step doctor 60 "$python" -m unistack_aot doctor
    checks "$folder"
    times "$folder"
    tuning "$folder"
    step probe 360 "$python" -m unistack_aot probe --device "${PROBED:-$device}" -o "$OUT/probe.json"
    case $device in
        cuda*) step peers 150 "$python" "$here/scripts/gpu_peers.py" times --side "$side" --out "$OUT/peers.json" ;;
    esac
    if command -v ncu >/dev/null; then counters "$folder"; else echo "no ncu here" | tee "$logs/ncu.log"; fi
}

case "${1:-}" in
    prepare) [ $# -ge 2 ] && shift && prepare "$@" ;;
    run) [ $# -eq 2 ] && run "$2" ;;
    *)
        sed -n '2,17p' "$0"
        exit 2
        ;;
esac
