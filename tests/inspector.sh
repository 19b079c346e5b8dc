#!/usr/bin/env bash
# The inspector's page in a real Chromium. Installs what is missing.
#
#   tests/inspector.sh page   against a mock of the admin listener; needs no binary
#   tests/inspector.sh real   against samewire: $SAMEWIRE_BIN, or the release or debug build
#   tests/inspector.sh        both
#
# SAMEWIRE_CHECK=words runs only the checks whose name has these words; SAMEWIRE_SCREENSHOTS=1 draws docs/figures/inspector-*.png.
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/clients.sh" inspector "$@"
