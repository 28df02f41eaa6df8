#!/usr/bin/env bash
# The main job on the embedded default: capture a generation, start Readie, run a pandas function
# cold and behind its imports, look at the catalogue, call it by curl; where gVisor works, once more
# in sandboxes that are restored from disk. Everything this makes lies in one temporary folder, and
# everything it starts ends with it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
up=""

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

stop_readie() {
    [[ -n $up ]] || return 0
    kill -INT "$up" 2>/dev/null || true
    wait "$up" 2>/dev/null || true
    up=""
}
trap 'stop_readie; rm -rf "$work"' EXIT

start_readie() { # RUNTIME GENERATION
    local data="$work/data-$1" log="$work/up-$1.log"
    : >"$log" # it is looked at before readie may have begun
    readie up --port 0 --data-dir "$data" --generations "$2" --runtime "$1" >"$log" 2>&1 &
    up=$!
    for _ in $(seq 900); do
        grep -q "Ctrl-C stops it" "$log" && break
        kill -0 "$up" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log"
    READIE_URL=$(sed -n 's/^Readie is running at //p' "$log")
    [[ -n $READIE_URL ]] || return 1
    READIE_AUTH_TOKEN=$(cat "$data/token")
    export READIE_URL READIE_AUTH_TOKEN
}

say "1. Capture a generation: pandas and scikit-learn, imported once, ahead of every call"
readie-pipeline capture --planner fixed --imports numpy,pandas --imports sklearn.linear_model \
    --with-empty --runtime fork --out "$work/forks"

say "2. Start Readie: gateway, queue, worker"
start_readie fork "$work/forks"

say "3. Call a function from Python"
python "$here/first_call.py"

say "4. What can be restored: the catalogue"
curl -fsS -H "Authorization: Bearer $READIE_AUTH_TOKEN" "$READIE_URL/v1/catalogues/cpu" |
    python "$here/show_catalogue.py"

say "5. The same by curl, from any language"
curl -fsS -X POST "$READIE_URL/v1/invoke" \
    -H "Authorization: Bearer $READIE_AUTH_TOKEN" -H 'Content-Type: application/json' \
    -d @"$here/call.json"
echo
stop_readie

if verdict=$(python -m readie_worker.sandbox.selftest --quick 2>&1); then
    say "6. The same in gVisor sandboxes: a checkpoint is a process saved on disk"
    readie-pipeline capture --planner fixed --imports numpy,pandas --with-empty \
        --runtime gvisor --out "$work/sandboxes"
    start_readie gvisor "$work/sandboxes"
    python "$here/restored.py"
    stop_readie
else
    say "6. gVisor sandboxes are left out here: ${verdict##*$'\n'}"
fi

say "Done: everything is stopped and removed"
