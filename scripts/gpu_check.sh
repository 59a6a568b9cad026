#!/usr/bin/env bash
# Confirms on a real GPU what the emulator cannot: results of the shipped machine code, speed, and the property map.
#
#   scripts/gpu_check.sh prepare FOLDER [TARGET...]   anywhere with a compiler: packages and Python wheels into FOLDER
#   scripts/gpu_check.sh run FOLDER                   on the GPU machine: checks, times and probes; results go to ${OUT:-gpu-out}
#
# TARGET defaults to cuda (every generation with a map). MODELS names models of the catalogue, one of each family of kernels by
# default; SIDE is the size of the matrices that are timed beside torch and CuPy. The GPU machine needs no network and no compiler
# but for the probes: what its Python lacks comes from FOLDER/wheels (pycuda for PYTHON_THERE, 3.12 by default; as a source, to
# be built there, if that Python is not here; WHEELS names the packages besides, all by default). Each step of `run` has a time limit and a log; a failed step does not stop the others;
# the status is 1 if any failed. The GPU's settings are left alone.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
models=${MODELS:-resnet_small resnet_small_dynamic mobilenet_v3_small unet_small_linear detector_small bert_small bert_small_dynamic \
bert_small_f16 bert_small_int8 gpt2_small llama_small vit_small speech_small lstm_small_dynamic gru_small resnet_int8_small}
device=${DEVICE:-cuda:0}
there=${PYTHON_THERE:-3.12}
packages=${WHEELS:-numpy ml_dtypes onnx onnxruntime protobuf>=5 rich safetensors pytools mako setuptools matplotlib}
side=${SIDE:-4096}
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

# step NAME SECONDS COMMAND...: runs with a limit, keeps the log, adds a line to the summary.
step() {
    local name=$1 limit=$2 status=0 started=$SECONDS
    shift 2
    timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1 || status=$?
    printf '%s\t%s\t%ss\n' "$name" "$status" $((SECONDS - started)) | tee -a "$OUT/summary.tsv"
    [ "$status" -eq 0 ] || failures=$((failures + 1))
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

run() {
    local folder=$1 package name
    python=${PYTHON:-python3}
    OUT=$(mkdir -p "${OUT:-gpu-out}" && cd "${OUT:-gpu-out}" && pwd)
    logs=$OUT-logs site=$OUT-site
    mkdir -p "$logs"
    failures=0
    export PYTHONPATH=$site:$PYTHONPATH
    printf 'step\tstatus\tseconds\n' >"$OUT/summary.tsv"
    nvidia-smi -q >"$OUT/nvidia-smi.txt" 2>&1
    install_site "$folder" >"$logs/site.log" 2>&1 || { echo "the wheels do not install; see $logs/site.log"; exit 1; }
    step doctor 60 "$python" -m unistack_aot doctor
    for package in "$folder"/*.pkg; do
        name=$(basename "$package" .pkg)
        step "selftest-$name" 120 "$python" -m unistack_aot run "$package" --device "$device" --selftest
        step "check-$name" 180 "$python" -m unistack_aot check "$folder/$name.onnx" "$package" --device "$device" --no-bisect
        step "time-$name" 120 "$python" -m unistack_aot run "$package" --device "$device" --time --json
    done
    for package in "$folder"/ops/*.pkg; do
        name=$(basename "$package" .pkg)
        step "op-$name" 120 "$python" -m unistack_aot run "$package" --device "$device" --profile --json
        step "op-check-$name" 120 "$python" -m unistack_aot check "$folder/ops/${name%.*}.onnx" "$package" --device "$device" \
            --no-bisect
    done
    case $device in
        cuda*) step peers 200 "$python" "$here/scripts/gpu_peers.py" times --side "$side" --out "$OUT/peers.json" ;;
    esac
    step probe 400 "$python" -m unistack_aot probe --device "${PROBED:-$device}" -o "$OUT/probe.json"
    tar -C "$logs" -czf "$OUT/logs.tar.gz" .
    echo "$failures failed; results in $OUT"
    [ "$failures" -eq 0 ]
}

case "${1:-}" in
    prepare) [ $# -ge 2 ] && shift && prepare "$@" ;;
    run) [ $# -eq 2 ] && run "$2" ;;
    *)
        sed -n '2,12p' "$0"
        exit 2
        ;;
esac
