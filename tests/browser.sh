#!/usr/bin/env bash
# Pages in a real Chromium call samewire: listed ones, others, and ones that attack the admin listener. Installs what is missing;
# the binary is $SAMEWIRE_BIN, or the release or debug build.
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/clients.sh" browser
