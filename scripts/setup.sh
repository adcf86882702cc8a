# shellcheck shell=bash
# Sourced by scripts/gate.sh and reproduce.sh, at the root of the repository: makes .venv and installs the pinned
# versions of constraints.txt into it. A stamp in .venv remembers what was installed, so that the second time is quick.

python_is_new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

# Prints the first Python of this machine that is new enough.
find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c "$python_is_new_enough" >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# Prints a digest of all that decides what an installation holds; the folder counts, since .venv stores its path.
installation_digest() {
    .venv/bin/python - "$PWD" <<'PYTHON'
import hashlib, pathlib, sys
parts = [pathlib.Path(name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
print(hashlib.sha256(b"\0".join([*parts, sys.argv[1].encode(), sys.version.encode()])).hexdigest())
PYTHON
}

# setup_venv EXTRAS: .venv with this project and its extras ("local", or "local,dev" which holds both), or status 2.
setup_venv() {
    local extras=$1 python digest stamp
    if ! .venv/bin/python -c "$python_is_new_enough" >/dev/null 2>&1; then
        if ! python=$(find_python); then
            echo "error: no Python 3.11 or newer on the PATH" >&2
            return 2
        fi
        if ! "$python" -m venv --clear .venv >&2; then
            echo "error: $python -m venv failed" >&2
            echo "  on Debian: apt-get install python3-venv" >&2
            return 2
        fi
    fi
    digest=$(installation_digest) || return 2
    for stamp in "$extras" local,dev; do
        if [[ -f .venv/installed-$stamp && $(<".venv/installed-$stamp") == "$digest" ]]; then
            return 0
        fi
    done
    echo "setup: installing into .venv, about a minute the first time" >&2
    rm -f -- .venv/installed-*
    if ! .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
        -c constraints.txt -e ".[$extras]" >.venv/setup.log 2>&1 </dev/null; then
        tail -n 20 .venv/setup.log >&2
        echo "error: pip install failed; all it said is in .venv/setup.log" >&2
        return 2
    fi
    printf '%s\n' "$digest" >".venv/installed-$extras"
}
