#!/usr/bin/env bash
# How much of their prompts two real engines find in their caches, behind samewire with each kind of affinity: two llama.cpp with a tiny
# model, conversations that share system prompts, and the engines' own counts of cached tokens. Prints a table.
#
#   benches/caches.sh         needs Python 3.11 and a processor with AVX2; packages go to target/caches; takes some minutes
#
# Takes samewire from $SAMEWIRE_BIN, or the release or debug build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=tests/setup.sh
source tests/setup.sh
samewire=$(samewire_binary)

packages=(xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6)
venv=target/caches
python_environment "$venv" "${packages[@]}"
exec "$venv/bin/python" benches/caches.py "$samewire"
