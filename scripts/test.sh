#!/usr/bin/env bash
# Style, types and tests, as CI runs them. Arguments go to pytest: scripts/test.sh -m slow, scripts/test.sh tests/pure
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/setup.sh
python=.venv/bin/python

echo "== style"
"$python" -m ruff format --check .
"$python" -m ruff check .

echo "== tests (types and import rules are among tests/arch)"
if (($#)); then
    exec "$python" -m pytest -q "$@"
fi
exec "$python" -m pytest -q -m "not slow and not gpu" --durations=10
