#!/usr/bin/env bash
# Repeats the tests of the cases for a long time and with much more of everything than CI does.
# Usage: chaos/soak.sh [MINUTES [SCALE]]    (30 minutes, 20 times as much)
# It stops at the first failure and shows its output. Random seeds differ in each round.
set -euo pipefail
minutes=${1:-30}
export APOGEE_CASES_SCALE=${2:-20}
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test --release --no-run -p apogee-net -p apogee-broker -p apogee -p apogee-store
end=$((SECONDS + minutes * 60))
round=0
while ((SECONDS < end)); do
    round=$((round + 1))
    for run in "-p apogee-net --test it" "-p apogee-broker --test it cases_" \
        "-p apogee --test it cases_" "-p apogee-store --test it"; do
        # shellcheck disable=SC2086  # the words of a run are its arguments
        if ! cargo test --release $run >"$log" 2>&1; then
            cat "$log"
            echo "round $round failed: cargo test --release $run" >&2
            exit 1
        fi
    done
    echo "round $round: all well after $((SECONDS / 60)) minutes"
done
