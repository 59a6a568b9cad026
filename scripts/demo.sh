#!/bin/sh
# Shows the whole way on this machine: a model is made, compiled, checked, run and timed. Takes a few minutes the first time.
# scripts/demo.sh [MODEL] where MODEL is a name from `scripts/models.py list` (default: resnet_small; resnet18 for real size).
set -eu
cd "$(dirname "$0")/.."

NAME=${1:-resnet_small}
sh scripts/setup.sh
. .venv/bin/activate
OUT=demo-out
mkdir -p "$OUT"
MODEL=$OUT/$NAME.onnx
PACKAGE=$OUT/$NAME.pkg

say() { printf '\n== %s\n' "$*"; }

say "a model"
python scripts/models.py build "$NAME" -o "$MODEL"

say "what this machine can do with it"
python -m unistack_aot doctor "$MODEL"

TARGETS="--target cpu --target emulator:sm_90"
if python -c 'from unistack_aot.targets.cuda.build import nvcc; nvcc()' 2>/dev/null; then
    TARGETS="$TARGETS --target cuda:sm_90"
fi
say "compile and check: $TARGETS"
# shellcheck disable=SC2086  # several words on purpose
python -m unistack_aot "$MODEL" -o "$PACKAGE" $TARGETS

say "what is in the package"
python -m unistack_aot show "$PACKAGE"

say "the package tests itself"
python -m unistack_aot run "$PACKAGE" --device cpu --selftest
python -m unistack_aot run "$PACKAGE" --device emulator --selftest

say "run it"
python -m unistack_aot run "$PACKAGE" --device cpu --time --output "$OUT/outputs"
echo
echo "demo: done; the package is $PACKAGE"
