#!/usr/bin/env bash
# The main job on the embedded default: capture a generation, start Readie, run a pandas function
# cold and behind its imports, look at the catalogue, call it by curl. Everything it makes lies in
# one temporary folder, and everything it starts ends with it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
up=""
stop() {
    if [[ -n $up ]]; then
        kill -INT "$up" 2>/dev/null || true
        wait "$up" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap stop EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
free_port() {
    python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

say "1. Capture a generation: pandas and scikit-learn, imported once, ahead of every call"
readie-pipeline capture --planner fixed --imports numpy,pandas --imports sklearn.linear_model \
    --with-empty --runtime fork --out "$work/generation"

say "2. Start Readie: gateway, queue, worker"
port=$(free_port)
readie up --port "$port" --data-dir "$work/data" --generations "$work/generation" --runtime fork \
    >"$work/up.log" 2>&1 &
up=$!
url="http://127.0.0.1:$port"
for _ in $(seq 600); do
    grep -q "Readie is running" "$work/up.log" && break
    kill -0 "$up" 2>/dev/null || break
    sleep 0.1
done
grep -q "Readie is running" "$work/up.log" || { cat "$work/up.log"; exit 1; }
cat "$work/up.log"
READIE_AUTH_TOKEN=$(cat "$work/data/token")
export READIE_URL=$url READIE_AUTH_TOKEN

say "3. Call a function from Python"
python "$here/first_call.py"

say "4. What can be restored: the catalogue"
curl -fsS -H "Authorization: Bearer $READIE_AUTH_TOKEN" "$url/v1/catalogues/cpu" |
    python "$here/show_catalogue.py"

say "5. The same by curl, from any language"
curl -fsS -X POST "$url/v1/invoke" \
    -H "Authorization: Bearer $READIE_AUTH_TOKEN" -H 'Content-Type: application/json' \
    -d @"$here/call.json"
echo

say "Done: everything is stopped and removed"
