#!/usr/bin/env bash
# Runs fuzz targets, one after the other, each from the seeds and from what earlier runs have found worth keeping.
#
#   tests/fuzz/run.sh 600                       every target, ten minutes each
#   tests/fuzz/run.sh 28800 chat_stream         one of them, eight hours
#
# Needs nightly Rust, cargo-fuzz (cargo install cargo-fuzz --locked) and a C++ compiler. Goes on after a target that
# found something, and fails at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  echo "usage: tests/fuzz/run.sh <seconds> [target...]" >&2
  exit 2
}
(($# >= 1)) && [[ $1 =~ ^[0-9]+$ ]] || usage
seconds=$1
shift
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(cd fuzz_targets && printf '%s\n' *.rs | sed 's/\.rs$//')

FUZZ_CORPUS=$PWD/corpus cargo test --locked --quiet --manifest-path ../../Cargo.toml --test wire -- --exact fuzz_seeds::corpus
broken=()
for target in "${targets[@]}"; do
  printf '\n== %s, %d s\n' "$target" "$seconds"
  # The limit of time is in the targets; libFuzzer's is for what does not come back. 64 MiB are the most that may be
  # asked for at a time. Looking for leaks after each run would cost more than the run; telling where a panic came from
  # takes longer than a run may.
  RUST_BACKTRACE=0 cargo +nightly fuzz run --fuzz-dir . "$target" -- -max_total_time="$seconds" -max_len=8192 -dict=words.dict \
    -timeout=10 -detect_leaks=0 -print_funcs=0 -malloc_limit_mb=64 -rss_limit_mb=2048 -print_final_stats=1 || broken+=("$target")
done
if ((${#broken[@]})); then
  printf '\nfound something: %s\n' "${broken[*]}" >&2
  exit 1
fi
