#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Stops what up.sh started and removes its state; logs stay in build/cluster/log. usage: down.sh
set -uo pipefail
# shellcheck source=env.sh
. "$(dirname "$0")/env.sh"
case ${1:-} in -h | --help) usage; exit 0 ;; esac
need_root
stop() { for file in "$@"; do [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null; done; }

stop "$state"/run/kubelet-*.pid # first: it would start the containers again
for d in "$state"/n[0-9]*; do
  [ -S "$d/c.sock" ] || continue
  for task in $(timeout 10 ctr -a "$d/c.sock" -n k8s.io tasks ls -q 2>/dev/null); do
    timeout 5 ctr -a "$d/c.sock" -n k8s.io tasks kill -s KILL "$task" 2>/dev/null
  done
done
sleep .5
stop "$state"/run/*.pid
sleep 1
for file in "$state"/run/*.pid; do [ -f "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null; done
# shims outlive containerd; all of this cluster name their socket or bundle below the state folder
for d in "$state"/n[0-9]*; do pgrep -f "containerd-shim.*-address $d/c.sock" | xargs -r kill -9 2>/dev/null; done
grep -oE " ${state}/[^ ]*" /proc/mounts | sort -r | xargs -r -n1 umount -l
# whatever still runs in this cluster's namespaces: a shell that somebody left there, or a cluster started from another checkout
for name in $(ip netns ls | awk '{print $1}' | grep -E "^$prefix-(cp|sw|n[0-9]+)$"); do
  ip netns pids "$name" 2>/dev/null | xargs -r kill -9 2>/dev/null
done
own=$(ip netns ls | awk '{print $1}' | grep -E "^$prefix-(cp|sw|n[0-9]+)$")
for _ in $(seq 50); do # a killed process may need a moment to end
  busy=; for name in $own; do busy+=$(ip netns pids "$name" 2>/dev/null); done
  [ -n "$busy" ] || break
  sleep .2
done
for name in $own; do ip netns del "$name"; done
# pods' namespaces (cni-*) outlive a killed kubelet; those without a process are left-overs
for name in $(ip netns ls | awk '{print $1}' | grep -E '^cni-'); do
  [ -z "$(ip netns pids "$name" 2>/dev/null)" ] && ip netns del "$name"
done
find /sys/fs/cgroup/ -maxdepth 2 -name "$prefix-n[0-9]*" -type d 2>/dev/null | while read -r d; do
  find "$d" -depth -type d -exec rmdir {} \; 2>/dev/null
done
rm -rf "$state"/{run,etcd,n[0-9]*,pki,kube,Corefile}
exit 0
