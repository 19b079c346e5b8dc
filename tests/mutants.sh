#!/usr/bin/env bash
# Mutation tests of what may not be wrong: each operator and result of the wire format, of requests, and of exchanges with
# engines is changed, one at a time, and the quick tests must fail. A separate run: a change costs a build, so all of them
# take days on two cores. The first run installs cargo-mutants.
#
#   tests/mutants.sh src/core/wire/sse.rs src/plan   the changes in these files and folders
#   tests/mutants.sh --shard 3/200                   a two-hundredth of all changes
#   tests/mutants.sh --list                          tells them, and changes nothing
#
#   --shard K/N     the changes K, K + N, K + 2N …
#   --list          no tests
#   --out FOLDER    where the results go       [target/mutants]
#
# Prints what the tests have missed, exits with 2 if there is such a change, and leaves caught.txt, missed.txt, timeout.txt and
# unviable.txt in FOLDER/mutants.out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=27.1.0
# Those that can tell and take seconds; the tests of whole processes are not among them.
TESTS=(--lib --test wire --test requests --
  --skip agree:: --skip differential:: --skip fuzz_seeds:: --skip lossless:: --skip reference:: --skip schema:: --skip splits::)

places=()
options=()
out=${CARGO_TARGET_DIR:-target}/mutants
while (($#)); do
  case $1 in
    --shard) options+=(--shard "${2:?--shard takes K/N}") && shift ;;
    --list) options+=(--list) ;;
    --out) out=${2:?--out takes a folder} && shift ;;
    -*)
      echo "usage: tests/mutants.sh [--shard K/N] [--list] [--out FOLDER] [FILE|FOLDER]…" >&2
      exit 2
      ;;
    *)
      if [[ -d $1 ]]; then places+=("${1%/}/**"); else places+=("$1"); fi
      ;;
  esac
  shift
done
((${#places[@]})) || places=('src/core/wire/**' 'src/request/**' 'src/plan/**' 'src/plan/mod.rs' 'src/upstream/**')

if [[ $(cargo mutants --version 2>/dev/null) != "cargo-mutants $VERSION" ]]; then
  cargo install cargo-mutants --locked --version "$VERSION"
fi
mkdir -p "$out"
files=()
for place in "${places[@]}"; do
  files+=(--file "$place")
done
# What only tells of a thing may be told otherwise.
cargo mutants --output "$out" --test-workspace true --no-shuffle --timeout 120 --exclude-re 'impl (fmt::)?(Debug|Display)' \
  "${files[@]}" "${options[@]}" -- --locked "${TESTS[@]}"
