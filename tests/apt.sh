# shellcheck shell=bash
# Sourced by the scripts that install Debian packages.

# Installs Debian packages as root, and says so before it does.
apt_install() {
  local sudo=()
  if ! command -v apt-get >/dev/null; then
    echo "missing: $* (as Debian calls the packages). There is no apt-get: install them by your system's own means, and run this again" >&2
    return 1
  fi
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "missing: $*. Run as root: apt-get install $*" >&2
      return 1
    fi
    sudo=(sudo)
  fi
  echo "installing as root, with apt-get: $*"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
