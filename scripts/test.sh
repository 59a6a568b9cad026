#!/usr/bin/env bash
# Style, types and tests, as CI runs them. Arguments go to pytest: scripts/test.sh -m slow, scripts/test.sh tests/pure
# Before a release: scripts/test.sh --all; also the slow tests, every model of the catalogue, random models (hours).
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/setup.sh
python=.venv/bin/python

echo "== style"
"$python" -m ruff format --check .
"$python" -m ruff check .

echo "== tests (types and import rules are among tests/arch)"
if [[ "${1:-}" == --all ]]; then
    "$python" -m pytest -q -m "not gpu" --durations=10
    echo "== models (verdicts of the same sources are kept: docs/models.json)"
    "$python" scripts/models.py check --record docs/models.json
    "$python" scripts/models.py check --record docs/models.json --device emulator
    "$python" scripts/models.py page
    seed="$(date +%Y%m%d)000"
    echo "== random models from seed $seed on"
    "$python" scripts/fuzz.py --level a --seconds 600 --seed "$seed"
    "$python" scripts/fuzz.py --level b --seconds 600 --seed "$seed"
    exec "$python" scripts/fuzz.py --level c --seconds 600 --seed "$seed"
fi
if (($#)); then
    exec "$python" -m pytest -q "$@"
fi
exec "$python" -m pytest -q -m "not slow and not gpu" --durations=10
