#!/bin/sh
# Prepares this checkout for work: .venv with the project and its test tools, a CUDA compiler, pycuda. Safe to run again: takes
# seconds when nothing is missing. pycuda is built from PyPI, once, also where there is no driver to link with; its wheel is kept
# in ${UA_CACHE:-~/.cache/unistack_aot}/wheels.
set -eu
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
CACHE=${UA_CACHE:-$HOME/.cache/unistack_aot}
WHEELS=$CACHE/wheels
PYCUDA=2026.1
STAMP=.venv/unistack-setup

say() { echo "setup: $*"; }

make_environment() {
    [ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
    wanted="$(cksum pyproject.toml) $(.venv/bin/python -V)"
    if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$wanted" ]; then
        say "packages are up to date"
        return
    fi
    say "installing the project and its test tools"
    .venv/bin/pip install --quiet --disable-pip-version-check --editable '.[report,test]'
    echo "$wanted" >"$STAMP"
}

# Where the toolkit's bin and include folders are; empty if there is none.
toolkit() {
    for compiler in "${UA_NVCC:-}" "$(command -v nvcc || true)" .venv/lib/python3*/site-packages/nvidia/cu1*/bin/nvcc; do
        [ -n "$compiler" ] && [ -x "$compiler" ] || continue
        # nvcc on PATH may be a script that calls the real one: ask it where it lives.
        root=$("$compiler" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
        [ -n "$root" ] && (cd "$root" && pwd) && return
    done
}

find_cuda() {
    CUDA=$(toolkit || true)
    if [ -z "$CUDA" ]; then
        say "no nvcc here: installing the CUDA compiler from PyPI"
        .venv/bin/pip install --quiet --disable-pip-version-check 'cuda-toolkit[cccl,cudart,nvcc,profiler]==13.*' || true
        CUDA=$(toolkit || true)
    fi
    if [ -n "$CUDA" ]; then
        say "CUDA compiler: $CUDA/bin/nvcc"
    else
        say "no CUDA compiler: the cuda target can not be built here; the cpu target works"
    fi
}

build_pycuda() {
    log=$(mktemp)
    scripts/pycuda_wheel.sh .venv/bin/python "$PYCUDA" "$CUDA" "$WHEELS" >"$log" 2>&1 || {
        say "pycuda could not be built (log: $log): the cuda device is missing; the cpu target works"
        return 1
    }
    rm -f "$log"
}

install_pycuda() {
    if .venv/bin/python -c 'import importlib.metadata as m; m.version("pycuda")' 2>/dev/null; then
        say "pycuda is here"
        return
    fi
    tag=$(.venv/bin/python -c 'import sys, platform; print(f"cp{sys.version_info[0]}{sys.version_info[1]}-*{platform.machine()}")')
    # shellcheck disable=SC2086  # the tag is a pattern
    wheel=$(ls "$WHEELS"/pycuda-$PYCUDA-$tag.whl 2>/dev/null | head -n 1 || true)
    if [ -z "$wheel" ]; then
        if [ -z "$CUDA" ]; then
            say "pycuda needs the CUDA headers to be built: the cuda device is missing; the cpu target works"
            return
        fi
        say "building pycuda $PYCUDA (two to four minutes, once)"
        build_pycuda || return 0
        # shellcheck disable=SC2086
        wheel=$(ls "$WHEELS"/pycuda-$PYCUDA-$tag.whl | head -n 1)
    fi
    say "installing $(basename "$wheel")"
    .venv/bin/pip install --quiet --disable-pip-version-check "$wheel"
}

make_environment
find_cuda
install_pycuda
say "ready: . .venv/bin/activate"
