# shellcheck shell=bash
# Sourced by the scripts that install Debian packages.

# Fails, and says which packages are missing, where apt-get cannot be run as root.
apt_check() {
  if ! command -v apt-get >/dev/null; then
    echo "missing: $* (as Debian calls the packages). There is no apt-get: install them by your system's own means, and run this again" >&2
    return 1
  fi
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
    echo "missing: $*. Run as root: apt-get install $*" >&2
    return 1
  fi
}

apt_as_root() {
  local sudo=()
  [[ $(id -u) -eq 0 ]] || sudo=(sudo)
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

# Installs Debian packages as root, and says so before it does.
apt_install() {
  apt_check "$@" || return
  echo "installing as root, with apt-get: $*"
  apt_as_root update -qq || return
  apt_as_root install -y -qq --no-install-recommends "$@" >/dev/null
}

# Unpacks a Debian package into a folder, without installing it: it starts no service and brings no other package along.
apt_unpack() {
  local folder=$1 package=$2
  echo "unpacking from Debian: $package"
  rm -rf "$folder"
  mkdir -p "$folder/deb"
  if ! (cd "$folder/deb" && apt-get download -qq "$package") 2>/dev/null; then
    # Its lists are missing or old.
    apt_check "$package" || return
    apt_as_root update -qq || return
    (cd "$folder/deb" && apt-get download -qq "$package") || return
  fi
  dpkg-deb --extract "$folder/deb/"*.deb "$folder"
}
