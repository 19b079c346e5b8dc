# shellcheck shell=bash
# Sourced by the scripts that run a samewire which was built before, with packages from PyPI.

# Prints the path of the binary: $SAMEWIRE_BIN, else the release or the debug build. Fails if there is none.
samewire_binary() {
  local candidate candidates=(target/release/samewire target/debug/samewire)
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
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$folder/stamp"
  fi
}
