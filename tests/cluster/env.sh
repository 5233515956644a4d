# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Names and folders shared by the scripts of the test cluster; sourced, never run.
# WEIR_CLUSTER_NAME prefixes network namespaces and cgroups, so that two clusters can live on one machine.
# shellcheck disable=SC2034 # used by the scripts that source this
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weir
state=${WEIR_CLUSTER_STATE:-$root/build/cluster}
prefix=${WEIR_CLUSTER_NAME:-weir}
bin=$cache/cluster-$(sha256sum "$here/go.sum" | cut -c1-12)
# the address and the node names of up.sh
api_address=10.210.0.1

say() { printf '[%s] %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" | grep -v '^SPDX'; }
need_root() { [ "$(id -u)" = 0 ] || die "needs root: it makes network namespaces, mounts and cgroups (try: sudo $0)"; }
# runs a command in the network of the control plane (cp), of the switch (sw) or of a node (n1, n2, ...); never by
# `ip netns exec`: that mounts another /sys and hides the cgroups from kubelet and containerd
in_ns() { local ns=$1; shift; nsenter --net="/var/run/netns/$prefix-$ns" "$@"; }
