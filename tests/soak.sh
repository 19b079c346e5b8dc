#!/usr/bin/env bash
# samewire under load for a long time: a thousand paced streams and other requests, four engines, and five in a hundred of
# requests and clients doing what they should not; every minute something happens to the machine. Prints a table of figures
# with their limits, writes it to target/soak/soak.json, and exits with 1 if one is missed.
#
#   tests/soak.sh                    ten minutes
#   tests/soak.sh 30                 so many minutes
#   tests/soak.sh --quick            half a minute of 100 streams; how late tokens come is told, and fails nothing
#   tests/soak.sh --open 10000       instead: so many streams open at once, each with a token every four seconds; what one costs
#
#   tests/soak.sh --churn [20]   instead: 500 clients a second, who leave at any point, the time before the first token included
#   tests/soak.sh --stopped [20]  instead: 1,000 readers that stop beside 200 streams
#   tests/soak.sh --idle [120]   instead: 50 clients who ask every 2 to 8 seconds, of engines that close after 5
#
#   --seed N         another run of the same kind: everything random follows from it
#   --streams N      paced streams at once                       [1000]
#   --rate N         tokens a second in each                     [50; with --open 0.25]
#   --tokens A-B     tokens of a stream                          [200-4000]
#   --whole N        whole answers a second                      [20]
#   --background N   background responses a second               [5]
#   --calm SECONDS   without faults, at the beginning            [a sixth of the whole]
#   --trouble SECONDS  from one trouble of the machine to the next: SIGHUP, an engine restarts, SIGSTOP, a locked store  [60]
#   --threads N      threads of samewire                         [one for each core]
#   --seconds N      the length in seconds
#   --lenient        for a machine that others use: tokens that come late fail nothing, the store may be slow at any time
#   --json FILE      where the figures go
#
# Takes samewire from $SAMEWIRE_BIN, or builds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=tests/setup.sh
source tests/setup.sh

options=()
# The load of a short run comes from a program that shares the build of the tests.
build=(cargo bench)
for word in "$@"; do
  case $word in
    --quick)
      build=(cargo test)
      options+=(--seconds 25 --calm 8 --streams 100 --tokens 20-400 --trouble 4 --lenient)
      ;;
    --churn) options+=(--streams 0 --whole 0 --background 0 --no-faults --tokens 20-400 --churn 500) ;;
    --stopped) options+=(--streams 200 --whole 0 --background 0 --no-faults --stopped 1000) ;;
    --idle) options+=(--streams 0 --whole 0 --background 0 --no-faults --idle 50) ;;
    --open) options+=(--rate 0.25 --seconds 60 --json target/soak/open.json --open) ;;
    *) options+=("$word") ;;
  esac
done

# Each stream is a socket of its client's, two of samewire's, and one of its engine's.
ulimit -n "$(ulimit -H -n)"

[[ ${SAMEWIRE_BIN:-} ]] || cargo build --release --locked --quiet
program=$(bench_program soak "${build[@]}")

# A separate process group, so that the end of this script ends everything it started.
set -m
mkdir -p target/soak
"$program" --samewire "$(samewire_binary)" ${options[@]+"${options[@]}"} </dev/null &
soak=$!
trap 'kill -- "-$soak" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
wait "$soak"
