#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shapes what one node receives, on its port of the switch (HTB; netem, fq, prio and sfq are not in every kernel).
# usage: shape.sh NODE rate 1gbit          capacity of the port (replaces everything set before)
#        shape.sh NODE share 40mbit IP...  traffic from these pod or node addresses gets exactly this rate, whatever else
#                                          wants the rest: a preempted link, repeatable. The rest of the port keeps its rate
#        shape.sh NODE unshare             gives the share back, keeps the rate
#        shape.sh NODE clear               no shaping at all
#        shape.sh NODE cut IP...           what pods of this node send to these addresses is lost without a word
#        shape.sh NODE mend IP...          and arrives again
# A burst passes unshaped: keep messages >= 8 bursts (a share's burst is 16 kB or 1 ms of its rate, whichever is more), and
# leave segmentation offload off on the nodes (up.sh does it): a 64 kB segment is a burst of its own.
set -euo pipefail
# shellcheck source=env.sh
. "$(dirname "$0")/env.sh"
[ $# -ge 2 ] || { usage; exit 2; }
need_root
device=port-$1
tc() { in_ns sw tc "$@"; }
bits() {
  local number=${1%%[a-z]*}
  case $1 in
    *gbit) echo $((number * 1000000000)) ;;
    *mbit) echo $((number * 1000000)) ;;
    *kbit) echo $((number * 1000)) ;;
    *) die "bad rate $1 (40mbit, 1gbit, ...)" ;;
  esac
}
class() { # PARENT ID RATE
  local burst=$(($(bits "$3") / 8000))
  [ $burst -gt 16384 ] || burst=16384
  tc class replace dev "$device" parent "$1" classid "$2" htb rate "$3" ceil "$3" burst $burst cburst $burst quantum 15000
}
set_rate() {
  tc qdisc del dev "$device" root 2>/dev/null || true
  tc qdisc add dev "$device" root handle 1: htb default 20
  class 1: 1:1 "$1"
  class 1:1 1:20 "$1"
}
unshare() {
  tc filter del dev "$device" parent 1: prio 1 2>/dev/null || true
  tc class del dev "$device" classid 1:10 2>/dev/null || true
}
case $2 in
  clear) tc qdisc del dev "$device" root 2>/dev/null || true ;;
  rate) set_rate "$3" ;;
  share)
    tc qdisc show dev "$device" | grep -q 'htb 1:' || set_rate 10gbit
    unshare
    class 1: 1:10 "$3"
    for address in "${@:4}"; do
      tc filter add dev "$device" parent 1: protocol ip prio 1 u32 match ip src "$address" flowid 1:10
    done ;;
  unshare) unshare ;;
  cut) for address in "${@:3}"; do in_ns "$1" ip route replace blackhole "$address/32"; done ;;
  mend) for address in "${@:3}"; do in_ns "$1" ip route del blackhole "$address/32"; done ;;
  *) usage; exit 2 ;;
esac
