#!/usr/bin/env bash
# Grafana's board (config/grafana/samewire.json) and the alerts (config/alerts.yaml): the alerts' unit tests, then a real Prometheus that
# scrapes samewire under traffic of every kind, where every query has to return data. The board is also held against Grafana's own
# types. Grafana itself is in no registry, so nobody looks at the picture. Sets up what is missing, starts no service; the binary is
# $SAMEWIRE_BIN, or the release or debug build.
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/clients.sh" dashboards
