#!/usr/bin/env bash
# Runs the audit here, reports it, and verifies the record with a program that shares no code with the first two.
# Exit status: the worst of run, report and verify in the order 5 (a bug), 4 (contradiction), 2 (could not), 3
# (inconclusive), 1 (an honest no), 0; 130 where it was interrupted.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

usage="usage: ./reproduce.sh [--tiny | [--quick] [PORT_15B PORT_05B | NAME=URL ...]]

  (nothing)           starts two llama.cpp servers here, Gemma 3 270M and SmolLM2 135M, and audits both
  --tiny              the same with two models of random weights: seconds, no download
  PORT_15B PORT_05B   audits two servers that run on this machine already, labelled 1.5b and 0.5b
  NAME=URL ...        audits any number of servers anywhere
  --quick             a short plan"

refuse() {
    printf 'error: %s\n\n%s\n' "$1" "$usage" >&2
    exit 2
}

say() {
    printf 'reproduce: %s\n' "$1" >&2
}

# Prints a port number without leading zeros, or fails.
port() {
    [[ $1 =~ ^0*([0-9]{1,5})$ ]] || return 1
    ((10#$1 >= 1 && 10#$1 <= 65535)) || return 1
    printf '%d\n' "$((10#$1))"
}

# worst CODE CODE: the one that comes first in 5, 4, 2, 3, 1, 0; any other status is a crash, which is a bug.
worst() {
    local code
    for code in 5 4 2 3 1 0; do
        if [[ $1 == "$code" || $2 == "$code" ]]; then
            printf '%s\n' "$code"
            return
        fi
    done
}

quick=()
tiny=false
servers=()
for argument in "$@"; do
    case $argument in
        -h | --help)
            printf '%s\n' "$usage"
            exit 0
            ;;
        --quick) quick=(--quick) ;;
        --tiny) tiny=true ;;
        -*) refuse "unknown option '$argument'" ;;
        *) servers+=("$argument") ;;
    esac
done

subjects=()
if $tiny && ((${#servers[@]} > 0)); then
    refuse "--tiny starts its own servers, so it takes no '${servers[0]}'"
elif $tiny; then
    ((${#quick[@]} == 0)) || refuse "--tiny has a plan of its own, so it takes no '--quick'"
    subjects=(--local tiny-llama-f32 --local tiny-qwen2-q8_0 --plan audit/data/tiny.toml --threads 1)
elif ((${#servers[@]} == 0)); then
    subjects=(--local gemma3-270m-q4_k_m --local smollm2-135m-q4_1)
elif [[ ${servers[0]} == *=* ]]; then
    names=' '
    for server in "${servers[@]}"; do
        [[ $server =~ ^[A-Za-z0-9._-]+=https?://[^[:space:]]+$ ]] || refuse "'$server' is not NAME=URL"
        [[ $names != *" ${server%%=*} "* ]] || refuse "'$server' uses the name of another server"
        names+="${server%%=*} "
        subjects+=(--server "$server")
    done
else
    for server in "${servers[@]}"; do
        port "$server" >/dev/null || refuse "'$server' is neither a port (1 to 65535) nor NAME=URL"
    done
    ((${#servers[@]} == 2)) || refuse "two ports are needed, PORT_15B and PORT_05B, got '${servers[*]}'"
    port_15b=$(port "${servers[0]}")
    port_05b=$(port "${servers[1]}")
    [[ $port_15b != "$port_05b" ]] || refuse "'${servers[1]}' is the port of the other server"
    subjects=(--server "1.5b=http://127.0.0.1:$port_15b" --server "0.5b=http://127.0.0.1:$port_05b")
fi

setup_venv local
mkdir -p results/local
# The process id keeps two that start within one second apart.
run=results/local/$(date -u +%Y%m%dT%H%M%SZ)-$$

# The last command's status, with a crash (a signal, an unknown status) turned into 5. An interrupt ends the script.
status=0
attempt() {
    status=0
    "$@" || status=$?
    if ((status == 130)); then
        say "interrupted"
        exit 130
    fi
    ((status <= 5)) || status=5
}

say "auditing ${subjects[*]} into $run"
attempt .venv/bin/determinism run "${subjects[@]}" ${quick[@]+"${quick[@]}"} --out "$run"
result=$status
if [[ ! -f $run/manifest.json ]]; then
    ((result != 0)) || result=5
    say "no record was made (exit $result)"
    exit "$result"
fi

say "findings of $run"
attempt .venv/bin/determinism report "$run"
result=$(worst "$result" "$status")

say "verifying $run with scripts/verify.py, which shares no code with the audit"
attempt .venv/bin/python -I -S scripts/verify.py "$run"
result=$(worst "$result" "$status")

say "the record is $run (exit $result)"
say "next: .venv/bin/determinism report $run --json"
exit "$result"
