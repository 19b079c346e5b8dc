#!/usr/bin/env bash
# Builds the release binary with a profile of itself: a build that counts, the load of benches/proxy.sh and every fixture, then
# the build that uses the counts. Without LLVM's llvm-profdata of the compiler's own release it says so and builds the plain
# release.
#
#   benches/pgo.sh                     target/release/samewire
#   benches/pgo.sh --target TRIPLE     target/TRIPLE/release/samewire
#   benches/pgo.sh --profile FILE      uses this profile, which an earlier run has left in target/pgo/samewire.profdata
#   benches/pgo.sh --strict            fails where there is no llvm-profdata, instead of building the plain release
#
# Takes three times as long as the plain release, or as long with --profile. RUSTFLAGS are kept. No two runs count the same;
# builds with the same profile are equal.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/setup.sh
source tests/setup.sh

triple=
profile=
strict=
while [ $# -gt 0 ]; do
  case $1 in
    --target)
      [ $# -gt 1 ] || { echo "benches/pgo.sh: --target wants a triple" >&2; exit 2; }
      triple=$2
      shift
      ;;
    --profile)
      [ $# -gt 1 ] || { echo "benches/pgo.sh: --profile wants a file" >&2; exit 2; }
      [ -r "$2" ] || { echo "benches/pgo.sh: --profile: cannot read $2" >&2; exit 2; }
      profile=$(realpath "$2")
      shift
      ;;
    --strict) strict=yes ;;
    *) echo "benches/pgo.sh: no such option: $1" >&2; exit 2 ;;
  esac
  shift
done
target=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')

# Prints the path of an llvm-profdata that reads what this compiler's builds write.
find_profdata() {
  local program
  for program in "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" "/usr/lib/llvm-$llvm/bin/llvm-profdata" \
    "$(command -v "llvm-profdata-$llvm" || true)"; do
    if [ -x "$program" ]; then
      echo "$program"
      return
    fi
  done
  return 1
}

# Installs it as part of the toolchain or, for root, as Debian's package.
install_profdata() {
  echo "Installing llvm-profdata of LLVM $llvm" >&2
  if command -v rustup >/dev/null && rustup component add llvm-tools >&2; then
    return
  fi
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null &&
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "llvm-$llvm"; } >&2
}

build() {
  cargo build --release --locked --bin samewire ${triple:+--target "$triple"}
}

build_with_profile() {
  RUSTFLAGS="${RUSTFLAGS-} -Cprofile-use=$profile" build
}

if [ -n "$profile" ]; then
  build_with_profile
  exit
fi

if ! profdata=$(find_profdata) && ! { install_profdata && profdata=$(find_profdata); }; then
  echo "benches/pgo.sh: there is no llvm-profdata of LLVM $llvm" >&2
  [ -z "$strict" ] || exit 3
  echo "benches/pgo.sh: builds the plain release" >&2
  build
  exit
fi

counts=$(realpath -m "$target/pgo/counts")
profile=$(realpath -m "$target/pgo/samewire.profdata")
rm -rf "$counts" "$profile"
mkdir -p "$counts"

# With --target, the flags do not reach build scripts and procedural macros.
RUSTFLAGS="${RUSTFLAGS-} -Cprofile-generate=$counts" CARGO_TARGET_DIR=$target/pgo \
  cargo build --release --locked --bin samewire --target "${triple:-$host}"
counting=$target/pgo/${triple:-$host}/release/samewire

# The load: benches/proxy.sh without nginx. The program that sends it needs no optimisation.
load=$(RUSTFLAGS='' bench_program proxy cargo test)
mkdir -p target/bench
ulimit -n "$(ulimit -H -n)"
"$load" contest --quick --no-nginx --samewire "$counting" --json "$target/pgo/load.json" \
  --only flat64,batch64,flat4,paced200,whole,prompt1m,short,responses64,responses1 >/dev/null
# Every engine's answers, as each API that they can become.
for folder in fixtures/{vllm,sglang,llamacpp}/*/; do
  for answer in "$folder"upstream.{sse,json}; do
    [ -f "$answer" ] || continue
    "$counting" rewrite --request "$folder/request.json" <"$answer" >/dev/null 2>&1 || true
    for api in responses messages; do
      "$counting" rewrite --to "$api" --request "$folder/request.json" <"$answer" >/dev/null 2>&1 || true
    done
  done
done
"$counting" demo --once >/dev/null

"$profdata" merge -o "$profile" "$counts"
build_with_profile
