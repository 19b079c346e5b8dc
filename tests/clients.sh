#!/usr/bin/env bash
# The official client libraries read what samewire writes.
#
# Sets up all it needs under target/clients/ (a Python venv and a node_modules, from the
# pinned versions in tests/clients/), which is done once and again when a pin changes.
# Builds nothing: the binary is $SAMEWIRE_BIN, or the release or debug build.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
here=$root/tests/clients
work=$root/target/clients

binary=${SAMEWIRE_BIN:-}
if [[ -z $binary ]]; then
  for candidate in "$root/target/release/samewire" "$root/target/debug/samewire"; do
    [[ -x $candidate ]] && binary=$candidate && break
  done
fi
if [[ -z $binary || ! -x $binary ]]; then
  echo "clients.sh: no samewire binary${binary:+ at $binary}; run 'cargo build --release' or set SAMEWIRE_BIN" >&2
  exit 1
fi
binary=$(realpath "$binary")

# Installs Debian packages, only where a command is missing.
apt_install() {
  local sudo=()
  [[ $(id -u) -eq 0 ]] || sudo=(sudo)
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3 python3-venv
command -v npm >/dev/null || apt_install nodejs npm

mkdir -p "$work"
# One run at a time sets up; a second one waits and then finds everything there.
exec 9>"$work/lock"
flock 9

python_stamp=$(python3 --version; cat "$here/python/requirements.txt")
if [[ ! -f $work/python.stamp || $(<"$work/python.stamp") != "$python_stamp" ]]; then
  echo "clients.sh: setting up Python"
  rm -rf "$work/venv" "$work/python.stamp"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$here/python/requirements.txt"
  "$work/venv/bin/pip" check --disable-pip-version-check
  printf '%s' "$python_stamp" >"$work/python.stamp"
fi

# The library wants Node 22. Where the machine's is older, one from the registry is put beside it.
node=$(command -v node)
optional=(--omit=optional)
if (($(node --print 'process.versions.node.split(".")[0]') < 22)); then
  optional=()
  node=$work/node_modules/node-linux-$(node --print process.arch)/bin/node
fi
node_stamp=$(echo "${optional[*]}"; cat "$here/node/package-lock.json")
if [[ ! -f $work/node.stamp || $(<"$work/node.stamp") != "$node_stamp" || ! -x $node ]]; then
  echo "clients.sh: setting up Node"
  rm -f "$work/node.stamp"
  cp "$here/node/package.json" "$here/node/package-lock.json" "$work/"
  (cd "$work" && npm ci --no-audit --no-fund --loglevel=error "${optional[@]}")
  printf '%s' "$node_stamp" >"$work/node.stamp"
fi
flock -u 9

cd "$work"
exec timeout --kill-after=10 600 "$work/venv/bin/python" "$here/run.py" "$binary" "$root/fixtures" "$node"
