#!/usr/bin/env bash
# Runs the unpacked image as its configuration says, before an engine; called by tests/packages.sh in a separate network.
#
#   tests/packages/image.sh ROOT LAYOUT TAG
set -euo pipefail
root=$1
config=$(skopeo inspect --config "oci:$2:$3")

# Prints a part of the image's configuration, a word a line.
words() {
  python3 -c 'import json, sys; [print(word) for key in sys.argv[2:] for word in json.loads(sys.argv[1])["config"][key]]' "$config" "$@"
}

# Runs a command in the image: as its user, with a root that nobody can write, and without a capability.
inside() {
  setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs \
    bwrap --unshare-user --ro-bind "$root" / --proc /proc --dev /dev --die-with-parent --clearenv \
    --setenv SAMEWIRE_UPSTREAM http://127.0.0.1:8000 --setenv SAMEWIRE_INSECURE_NO_AUTH true -- "$@"
}

wait_for() {
  local _
  for _ in {1..100}; do
    if "$@"; then return; fi
    sleep 0.1
  done
  echo "waited in vain for: $*" >&2
  return 1
}

# Only root can become the image's user; any other user stays the same.
if [[ $(id -u) -ne 0 ]]; then
  setpriv() {
    while [[ $1 != bwrap ]]; do shift; done
    "$@"
  }
fi

mapfile -t start < <(words Entrypoint Cmd)
# The health check is no part of the specification of OCI, so that skopeo leaves it out of what it prints.
mapfile -t health < <(python3 - "$2" "$3" <<'PYTHON'
import json, pathlib, sys
layout = pathlib.Path(sys.argv[1])
read = lambda digest: json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
name = "org.opencontainers.image.ref.name"
top = json.loads((layout / "index.json").read_text())["manifests"]
manifest = read(next(one for one in top if one["annotations"][name] == sys.argv[2])["digest"])
test = read(manifest["config"]["digest"])["config"]["Healthcheck"]["Test"]
assert test[0] == "CMD", test
print("\n".join(test[1:]))
PYTHON
)

inside /samewire --version
if inside /bin/sh -c true 2>/dev/null; then
  echo "the image has a shell" >&2
  exit 1
fi
echo "started by: ${start[*]}; health: ${health[*]}"
inside "${start[@]}" &
wait_for curl -sf -o /dev/null http://127.0.0.1:9090/livez
if inside "${health[@]}" 2>/dev/null; then
  echo "it is healthy without an engine" >&2
  exit 1
fi
"$root/samewire" demo --listen 127.0.0.1:8000 --admin-listen 127.0.0.1:8001 >/dev/null 2>&1 &
wait_for inside "${health[@]}" 2>/dev/null
curl -sf http://127.0.0.1:8080/v1/models | grep -q '"object":"list"'
# The process that serves, not the sandbox around it.
process=$(pgrep -n -f '^/samewire serve')
grep -E '^(Uid|CapEff|NoNewPrivs):' "/proc/$process/status"
if [[ $(id -u) -eq 0 ]]; then grep -q '^Uid:.65532.65532.65532.65532$' "/proc/$process/status"; fi
grep -q '^CapEff:.0*$' "/proc/$process/status"
awk '$2 == "/" && $4 !~ /(^|,)ro(,|$)/ { exit 1 }' "/proc/$process/mounts"
echo "the image runs: ready before an engine, without a right, its root read-only"
