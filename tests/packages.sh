#!/usr/bin/env bash
# Tests what .ci/release has made: installs it, runs it, removes it.
#
#   tests/packages.sh target/dist     binaries for other machines run in QEMU where it is installed
#
# The Debian package is really installed, and purged afterwards. On a machine that has samewire installed already, the script stops
# before it touches anything. Needs root or sudo, and Debian 12 or newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/apt.sh
source tests/apt.sh

if (($# != 1)) || [[ ! -f $1/SHA256SUMS ]]; then
  echo "usage: tests/packages.sh FOLDER, which .ci/release has made" >&2
  exit 2
fi
dist=$(realpath "$1")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
native=$(dpkg --print-architecture)
# Bytes of the image's layers, compressed.
image_limit=15000000
# The exposure of the unit by `systemd-analyze security`, times ten: 0 is none, 100 is full.
exposure_limit=15

work=$(realpath -m target/packages)
rm -rf "$work"
mkdir -p "$work"
sudo=()
[[ $(id -u) -eq 0 ]] || sudo=(sudo)

fail() {
  echo "tests/packages.sh: $*" >&2
  exit 1
}

set_up() {
  local missing=() program
  local -A package=([skopeo]=skopeo [umoci]=umoci [bwrap]=bubblewrap [systemd-analyze]=systemd [readelf]=binutils
    [setpriv]=util-linux [curl]=curl [unzip]=unzip [adduser]=adduser [python3]=python3)
  for program in "${!package[@]}"; do
    command -v "$program" >/dev/null || missing+=("${package[$program]}")
  done
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  if ((${#missing[@]})); then apt_install "${missing[@]}"; fi
}

check_sums() {
  (cd "$dist" && sha256sum --quiet --check SHA256SUMS)
}

# Every archive has the program, which is static, and what belongs to it.
check_archives() {
  local archive folder file runner
  for archive in "$dist"/samewire-"$version"-*-linux-*.tar.gz; do
    tar -xzf "$archive" -C "$work"
    folder=$work/$(basename "$archive" .tar.gz)
    for file in LICENSE LICENSES-OF-CRATES.txt README.md samewire.toml man/samewire.1 completions/samewire.bash; do
      [[ -s $folder/$file ]] || fail "$archive: $file is missing"
    done
    grep -q '^rustls [0-9]' "$folder/LICENSES-OF-CRATES.txt" || fail "$archive: the licence of rustls is missing"
    if readelf --wide --dynamic --program-headers "$folder/samewire" | grep -E 'NEEDED|INTERP'; then
      fail "$archive: the program is not static"
    fi
    if readelf --wide --sections "$folder/samewire" | grep -F ' .symtab'; then
      fail "$archive: the program is not stripped"
    fi
    if grep -qaF -e "$PWD/" -e "$HOME/" "$folder/samewire"; then
      fail "$archive: the program names folders of the machine that built it"
    fi
    runner=()
    if [[ $archive == *-aarch64-* && $native != arm64 ]]; then runner=(qemu-aarch64-static); fi
    if [[ ${runner[*]} ]] && ! command -v "${runner[0]}" >/dev/null; then
      echo "$(basename "$archive"): not run, ${runner[0]} is not installed"
      continue
    fi
    "${runner[@]}" "$folder/samewire" --version | grep -F "samewire $version" || fail "$archive: it does not say its version"
    "${runner[@]}" "$folder/samewire" demo --once >"$work/demo" || fail "$archive: the demo fails"
    grep -q reasoning_content "$work/demo" || fail "$archive: the demo shows nothing"
    "${runner[@]}" "$folder/samewire" check --config "$folder/samewire.toml" >/dev/null || fail "$archive: its example is not taken"
    echo "$(basename "$archive"): $(stat -c %s "$archive") bytes, the program $(stat -c %s "$folder/samewire") bytes"
  done
}

# Each bill of materials names the crates that the licences name.
check_bills() {
  local bill
  for bill in "$dist"/*.cdx.json; do
    python3 - "$bill" "$work/$(basename "$bill" .cdx.json)/LICENSES-OF-CRATES.txt" "$version" "$PWD" <<'PYTHON'
import json, re, sys
path, licences, version = sys.argv[1:4]
bill = json.load(open(path))
assert bill["bomFormat"] == "CycloneDX", path
own = bill["metadata"]["component"]
assert (own["name"], own["version"]) == ("samewire", version), own
names = {(one["name"], one["version"]) for one in bill["components"]}
listed = set(re.findall(r"^([\w-]+) ([0-9]\S*) {2,}", open(licences).read(), re.MULTILINE))
assert listed and listed <= names, sorted(listed - names)
assert sys.argv[4] not in json.dumps(bill), "it names a folder of the machine that made it"
assert all(one.get("purl") and one.get("licenses") for one in bill["components"])
print(f"{path.rsplit('/', 1)[1]}: {len(names)} components, of which {len(listed)} are in the program")
PYTHON
  done
}

# Runs a command as a user, with that user's groups alone.
as_user() {
  local user=$1
  shift
  "${sudo[@]}" setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups --no-new-privs "$@"
}

check_debian_package() {
  local deb=$dist/samewire_$version-1_$native.deb unit file
  if dpkg-query -W -f '${db:Status-Status}' samewire 2>/dev/null | grep -q .; then
    fail "samewire is installed on this machine: its package is not replaced"
  fi
  if [[ -e /etc/samewire || -e /var/lib/samewire ]]; then fail "/etc/samewire or /var/lib/samewire is there already"; fi
  dpkg-deb --info "$deb" | grep -E '^ (Package|Version|Architecture|Installed-Size|Depends):'
  trap '"${sudo[@]}" dpkg --purge samewire >/dev/null 2>&1' EXIT
  "${sudo[@]}" dpkg -i "$deb" >"$work/dpkg" 2>&1 || fail "dpkg -i: $(<"$work/dpkg")"
  /usr/bin/samewire --version
  id samewire
  [[ $(dpkg-query -W -f '${Conffiles}' samewire) == *' /etc/samewire/samewire.toml '* ]] || fail "the configuration is no conffile"
  for file in /usr/share/man/man1/samewire.1.gz /usr/share/man/man1/samewire-serve.1.gz /usr/share/doc/samewire/copyright \
    /usr/share/bash-completion/completions/samewire /usr/share/zsh/vendor-completions/_samewire \
    /usr/share/fish/vendor_completions.d/samewire.fish; do
    [[ -s $file ]] || fail "$file is missing"
  done
  unit=$(dpkg -L samewire | grep '/samewire\.service$') || fail "the unit is missing"
  # Not only of this unit: what it depends on is read, too.
  systemd-analyze verify "$unit" 2>&1 | tee "$work/verify"
  if grep -F samewire.service "$work/verify"; then fail "the unit is wrong"; fi
  systemd-analyze security --offline=true --no-pager --threshold="$exposure_limit" "$unit" >"$work/security" ||
    fail "the unit exposes more than $exposure_limit: $(grep Overall "$work/security")"
  grep Overall "$work/security"

  # What lies in the folder of the configuration is for the service alone, such as the key of an engine.
  "${sudo[@]}" install -o root -g samewire -m 640 /dev/null /etc/samewire/engine.key
  as_user samewire cat /etc/samewire/samewire.toml /etc/samewire/engine.key >/dev/null || fail "the service cannot read its files"
  if as_user nobody cat /etc/samewire/samewire.toml 2>/dev/null; then fail "everybody can read the configuration"; fi
  if as_user nobody cat /etc/samewire/engine.key 2>/dev/null; then fail "everybody can read a key"; fi
  if as_user samewire test -w /etc/samewire/samewire.toml; then fail "the service can change its configuration"; fi
  as_user samewire /usr/bin/samewire check --config /etc/samewire/samewire.toml >/dev/null || fail "the configuration is not taken"

  # A changed configuration outlives the package, and goes with a purge.
  "${sudo[@]}" sed -i '1s/^/# changed\n/' /etc/samewire/samewire.toml
  "${sudo[@]}" dpkg -i "$deb" >"$work/dpkg" 2>&1 || fail "dpkg -i, again: $(<"$work/dpkg")"
  [[ $("${sudo[@]}" head -1 /etc/samewire/samewire.toml) == '# changed' ]] || fail "an upgrade loses the configuration"
  [[ $("${sudo[@]}" stat -c '%U:%G %a' /etc/samewire/samewire.toml) == 'root:samewire 640' ]] || fail "an upgrade opens the configuration"
  "${sudo[@]}" dpkg -r samewire >"$work/dpkg" 2>&1 || fail "dpkg -r: $(<"$work/dpkg")"
  [[ ! -e /usr/bin/samewire && ! -e $unit ]] || fail "the package leaves files behind"
  "${sudo[@]}" test -s /etc/samewire/samewire.toml || fail "the configuration is removed with the package"
  "${sudo[@]}" rm /etc/samewire/engine.key
  "${sudo[@]}" dpkg --purge samewire >"$work/dpkg" 2>&1 || fail "dpkg --purge: $(<"$work/dpkg")"
  trap - EXIT
  [[ ! -e /etc/samewire && ! -e /var/lib/samewire ]] || fail "a purge leaves /etc/samewire or /var/lib/samewire behind"
  if getent passwd samewire; then fail "a purge leaves the user behind"; fi
  echo "$(basename "$deb"): installed, upgraded, removed and purged"
}

check_wheel() {
  local wheel machine
  machine=$(uname -m)
  wheel=$(compgen -G "$dist/samewire-$version-py3-none-*_$machine.whl" | head -1) || fail "there is no wheel for $machine"
  if unzip -p "$wheel" | grep -qaF "$PWD/"; then fail "the wheel names folders of the machine that built it"; fi
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
  "$work/venv/bin/samewire" --version | grep -F "samewire $version"
  "$work/venv/bin/samewire" demo --once | grep -q reasoning_content || fail "the demo of the wheel fails"
  python3 -m venv "$work/uv"
  "$work/uv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.8
  "$work/uv/bin/uvx" --quiet --no-config --offline --cache-dir "$work/uv-cache" --python "$(command -v python3)" --from "$wheel" samewire demo --once |
    grep -q reasoning_content || fail "the demo by uvx fails"
  echo "$(basename "$wheel"): installed by pip and run by uvx"
}

# The image is unpacked and run: its root read-only, its user without any right, its network separate.
check_image() {
  local image=$dist/samewire-$version-image architecture size
  for architecture in amd64 arm64; do
    grep -q "$version-$architecture" "$image/index.json" || continue
    skopeo inspect --override-arch "$architecture" "oci:$image:$version" >"$work/inspected" || fail "skopeo does not read the image"
    skopeo inspect --config --override-arch "$architecture" "oci-archive:$image.tar:$version" >"$work/config" || fail "skopeo does not read the archive"
    size=$(python3 - "$image" "$version" "$architecture" "$work/inspected" "$work/config" <<'PYTHON'
import json, pathlib, sys
layout, version, architecture = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
inspected, config = (json.load(open(path)) for path in sys.argv[4:])
assert inspected["Architecture"] == config["architecture"] == architecture, inspected
said = config["config"]
assert said["User"] == "65532:65532", said
assert said["Entrypoint"] == ["/samewire"], said
assert set(said["ExposedPorts"]) == {"8080/tcp", "9090/tcp"}, said
assert said["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0", said
top = json.loads((layout / "index.json").read_text())["manifests"]
names = {one["annotations"]["org.opencontainers.image.ref.name"]: one["digest"] for one in top}
digest = names[f"{version}-{architecture}"]
manifest = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
print(sum(layer["size"] for layer in manifest["layers"]))
PYTHON
    )
    echo "image for $architecture: $size bytes compressed"
    ((size < image_limit)) || fail "the image is larger than $image_limit bytes"
  done

  local bundle=$work/bundle rootless=()
  [[ $(id -u) -eq 0 ]] || rootless=(--rootless)
  umoci unpack "${rootless[@]}" --image "$image:$version-$native" "$bundle" >/dev/null
  local files
  files=$(cd "$bundle/rootfs" && find . -type f | sort | paste -sd' ')
  [[ $files == './LICENSE ./etc/ssl/certs/ca-certificates.crt ./samewire' ]] || fail "the image has other files: $files"
  # Where a runtime mounts these.
  mkdir -p "$bundle/rootfs/proc" "$bundle/rootfs/dev"
  if ! bwrap --dev-bind / / --proc /proc --unshare-net --unshare-pid true 2>"$work/image"; then
    echo "the image is NOT run: this machine lets nobody make namespaces ($(<"$work/image"))"
    return
  fi
  # Bound to where the image's user may go, wherever this folder is.
  bwrap --dev-bind / / --ro-bind "$bundle/rootfs" /mnt --proc /proc --unshare-net --unshare-pid --die-with-parent \
    bash tests/packages/image.sh /mnt "$dist/samewire-$version-image" "$version-$native" 2>"$work/image" ||
    fail "the image does not run: $(tail -5 "$work/image")"
}

set_up
for part in sums archives bills debian_package wheel image; do
  printf -- '-- %s\n' "$part"
  "check_$part"
done
echo "tests/packages.sh: all of $dist passed"
