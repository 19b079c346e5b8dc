#!/usr/bin/env bash
# How much of their prompts two real engines find in their caches, behind samewire with each kind of affinity: two llama.cpp with a tiny
# model, conversations that share system prompts, and the engines' own counts of cached tokens. Prints a table.
#
#   benches/caches.sh         needs Python 3.11 and a processor with AVX2; packages go to target/caches; takes some minutes
#
# Takes samewire from $SAMEWIRE_BIN, or the release or debug build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

samewire=${SAMEWIRE_BIN:-}
for candidate in target/release/samewire target/debug/samewire; do
  [[ $samewire ]] || [[ ! -x $candidate ]] || samewire=$candidate
done
if [[ ! $samewire ]]; then
  echo "benches/caches.sh: there is no samewire: build it, or name it in SAMEWIRE_BIN" >&2
  exit 2
fi

packages=(xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6)
venv=target/caches
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "${packages[*]}" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" >"$venv/stamp"
fi
exec "$venv/bin/python" benches/caches.py "$(realpath "$samewire")"
