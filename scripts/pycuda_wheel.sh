#!/bin/sh
# Builds a wheel of pycuda for one Python:  pycuda_wheel.sh PYTHON VERSION CUDA_FOLDER OUT_FOLDER
#
# pycuda wants a libcuda to link with and no curand: both are answered from outside its source. The stub has no symbols, so the
# linker must be told to record the library all the same: a real driver is found through that record.
set -eu
python=$1 version=$2 cuda=$3 out=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/stub" "$scratch/home" "$out"
echo | cc -shared -x c - -Wl,-soname,libcuda.so.1 -o "$scratch/stub/libcuda.so"
[ -f "$cuda/include/curand.h" ] || echo 'CUDA_ENABLE_CURAND = False' >"$scratch/home/.aksetup-defaults.py"
HOME=$scratch/home PATH=$cuda/bin:$PATH CPATH=$cuda/include LIBRARY_PATH=$cuda/lib64:$cuda/lib:$scratch/stub \
    CFLAGS='-O1 -g0 -w' LDFLAGS='-Wl,--no-as-needed' "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir "$scratch/out" "pycuda==$version"
cp "$scratch"/out/pycuda-*.whl "$out/"
