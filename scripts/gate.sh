#!/usr/bin/env bash
# The project's test command: ./scripts/gate.sh
#
# Sets up .venv, then runs every check, also after one has failed, and says at the end what failed and what was not run.
# A check that this machine cannot run (a program is missing) is listed as NOT RUN; with CI=true that is a failure.
# Exit status: 0 all passed, 1 something failed, 2 the gate could not start.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

if (($# > 0)); then
    echo "error: gate.sh takes no argument, got '$1'" >&2
    exit 2
fi

passed=0
failed=()
not_run=()
log=$(mktemp)
trap 'rm -f -- "$log"' EXIT

# step quiet|loud NAME COMMAND...: one check, one line. The output of a quiet one is shown where it fails.
step() {
    local volume=$1 name=$2 begun=$SECONDS status=0
    shift 2
    if [[ $volume == loud ]]; then
        "$@" </dev/null 2>&1 | tee -- "$log" || status=$?
    else
        "$@" </dev/null >"$log" 2>&1 || status=$?
    fi
    if ((status == 0)); then
        passed=$((passed + 1))
        printf 'ok    %-24s %4d s\n' "$name" "$((SECONDS - begun))"
    else
        failed+=("$name (exit $status)")
        [[ $volume == loud ]] || cat -- "$log"
        printf 'FAIL  %-24s %4d s, exit %d\n' "$name" "$((SECONDS - begun))" "$status"
    fi
}

# step_with PROGRAM NAME COMMAND...: a quiet step that needs a program which may be missing.
step_with() {
    if command -v -- "$1" >/dev/null; then
        step quiet "${@:2}"
        return
    fi
    not_run+=("$2: no $1 on this machine")
    [[ ${CI:-} != true ]] || failed+=("$2 (not run)")
}

setup_venv local,dev
printf 'ok    %-24s %4d s\n' "set-up" "$SECONDS"

step quiet "ruff check" .venv/bin/ruff check .
step quiet "ruff format" .venv/bin/ruff format --check .
step quiet "mypy --strict" .venv/bin/mypy --strict
step quiet "ASCII" .venv/bin/python -m pytest tests/unit/test_ascii.py
step loud "pytest" .venv/bin/python -m pytest
# tests/conftest.py prints one such line for every test that was skipped, and fails for it in CI.
while IFS= read -r line; do
    not_run+=("${line#NOT RUN: }")
done < <(grep '^NOT RUN: ' -- "$log" || true)
step quiet "site" env NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet --site-dir build/site
step loud "stored runs" .venv/bin/python scripts/stored_runs.py
step loud "derived files" .venv/bin/python -m scripts.derived_files
step_with pypy3 "stored runs, pypy3" .venv/bin/python scripts/stored_runs.py --python pypy3

echo
for line in ${not_run[@]+"${not_run[@]}"}; do
    echo "NOT RUN: $line"
done
for line in ${failed[@]+"${failed[@]}"}; do
    echo "FAILED: $line"
done
echo "took $SECONDS s"
echo "gate: $passed passed, ${#failed[@]} failed"
((${#failed[@]} == 0))
