#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts a real Kubernetes on this machine: a control plane and N nodes, each in its own network namespace, joined by a
# switch namespace whose ports can be shaped (shape.sh). Pod IPs, cluster IPs, cluster DNS, logs, exec and projected
# tokens work as on any cluster. Nothing listens outside these namespaces. State and logs lie in build/cluster.
# usage: up.sh [--nodes N] [IMAGE.tar | IMAGE.tar@NODE]...     an image goes to all nodes, or to one
# Environment: GPU_TYPES (labels of the pretend GPUs, in turn), GPUS (per node, 1), WEIR_CLUSTER_STATE, WEIR_CLUSTER_NAME.
set -euo pipefail
# shellcheck source=env.sh
. "$(dirname "$0")/env.sh"
nodes=4
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --nodes) nodes=$2; shift 2 ;;
    -*) usage; exit 2 ;;
    *) break ;;
  esac
done
need_root
[ -x "$bin/promtool" ] || die "the cluster's programs are not built (tests/cluster/build.sh)"
net=10.210.0 pods=10.211 services=10.212.0
api=https://$api_address:6443
if [ -d "$state/run" ] || ip netns ls | grep -qE "^$prefix-(cp|sw|n[0-9]+)( |$)"; then "$here/down.sh"; fi
mkdir -p "$state"/{run,log,pki,kube}
cd "$state"

start() { # NAME NAMESPACE program arguments...
  local name=$1 ns=$2; shift 2
  setsid nsenter --net="/var/run/netns/$prefix-$ns" "$@" >"$state/log/$name.log" 2>&1 </dev/null 8>&- 9>&- &
  echo $! >"$state/run/$name.pid"
}
wait_for() { # WHAT command...
  local what=$1; shift
  for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep .1; done
  tail -n 5 "$state"/log/*.log >&2
  die "timeout: $what (logs: $state/log)"
}
kc() { in_ns cp "$bin/kubectl" --kubeconfig "$state/kube/admin" "$@"; }
all_nodes=$(seq -f n%g "$nodes")

make_network() { # one switch namespace with a bridge; every node and the control plane hang off it by a veth pair
  ip netns add "$prefix-sw"
  ip -n "$prefix-sw" link add br0 type bridge
  ip -n "$prefix-sw" link set br0 up
  plug cp 1
  for i in $(seq "$nodes"); do plug "n$i" $((10 + i)); done
  for ns in cp $all_nodes; do
    in_ns "$ns" sysctl -qw net.ipv4.ip_forward=1
    for i in $(seq "$nodes"); do
      [ "$ns" = "n$i" ] || ip -n "$prefix-$ns" route add "$pods.$i.0/24" via "$net.$((10 + i))"
    done
  done
}
plug() { # NAME HOST-PART
  ip netns add "$prefix-$1"
  ip link add eth0 netns "$prefix-$1" type veth peer name "port-$1" netns "$prefix-sw"
  in_ns "$1" ethtool -K eth0 tso off gso off >/dev/null # 64 kB segments would pass a shaper as one burst
  ip -n "$prefix-$1" addr add "$net.$2/24" dev eth0
  ip -n "$prefix-$1" link set eth0 up
  ip -n "$prefix-$1" link set lo up
  ip -n "$prefix-sw" link set "port-$1" master br0
  ip -n "$prefix-sw" link set "port-$1" up
}

make_identities() { # static bearer tokens, one service-account key; the API server makes its own serving certificate
  openssl genrsa -out pki/sa.key 2048 2>/dev/null
  openssl rsa -in pki/sa.key -pubout -out pki/sa.pub 2>/dev/null
  : >pki/tokens.csv
  chmod 700 pki kube
  user admin admin system:masters
  user kcm system:kube-controller-manager ''
  user sched system:kube-scheduler ''
  user proxy system:kube-proxy ''
  for node in $all_nodes; do user "$node" "system:node:$node" system:nodes; done
}
user() { # FILE NAME GROUPS
  local token; token=$(openssl rand -hex 16)
  echo "$token,$2,$1,\"$3\"" >>pki/tokens.csv
  cat >"kube/$1" <<Y
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "$api", certificate-authority: "$state/pki/apiserver.crt"}}]
users: [{name: $1, user: {token: "$token"}}]
contexts: [{name: lab, context: {cluster: lab, user: $1}}]
current-context: lab
Y
}

start_control_plane() { # aggregator-routing: the API server asks webhooks by their pods' addresses, no kube-proxy runs beside it
  start etcd cp "$bin/etcd" --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn
  start apiserver cp "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --advertise-address=$api_address --secure-port=6443 \
    --cert-dir="$state/pki" --token-auth-file="$state/pki/tokens.csv" --anonymous-auth=true \
    --service-account-key-file="$state/pki/sa.pub" --service-account-signing-key-file="$state/pki/sa.key" \
    --service-account-issuer=https://kubernetes.default.svc --authorization-mode=Node,RBAC \
    --enable-aggregator-routing=true --enable-admission-plugins=NodeRestriction --service-cluster-ip-range=$services.0/24 --allow-privileged=true \
    --kubelet-preferred-address-types=InternalIP
  wait_for "API server" kc get --raw /readyz
  local files=()
  as() { files=(--kubeconfig="$state/kube/$1" --authentication-kubeconfig="$state/kube/$1" --authorization-kubeconfig="$state/kube/$1"); }
  as kcm
  start kcm cp "$bin/kube-controller-manager" "${files[@]}" --bind-address=127.0.0.1 --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file="$state/pki/sa.key" \
    --root-ca-file="$state/pki/apiserver.crt" --node-monitor-grace-period=16s
  as sched
  start sched cp "$bin/kube-scheduler" "${files[@]}" --bind-address=127.0.0.1 --leader-elect=false
}

make_cgroups() { # NODE: on cgroup v1 one group per controller, with the cpus and memory nodes of its parent
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$prefix-$1"
    return
  fi
  for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
    [ -d /sys/fs/cgroup/$controller ] && mkdir -p "/sys/fs/cgroup/$controller/$prefix-$1"
  done
  for file in cpus mems; do
    cat /sys/fs/cgroup/cpuset/cpuset.$file >"/sys/fs/cgroup/cpuset/$prefix-$1/cpuset.$file"
  done
}

start_node() { # NUMBER IMAGE...
  local i=$1 node=n$1 d=$state/n$1; shift
  mkdir -p "$d/cni" "$d/kubelet"
  cat >"$d/containerd.toml" <<Y
version = 2
root = "$d/ctd"
state = "$d/ctd-state"
[grpc]
  address = "$d/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "localhost/pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$d/cni"
Y
  cat >"$d/cni/10-bridge.conflist" <<Y
{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"hairpinMode":true,
 "ipam":{"type":"host-local","dataDir":"$d/ipam","ranges":[[{"subnet":"$pods.$i.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}
Y
  echo "nameserver $api_address" >"$d/resolv.conf"
  cat >"$d/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /$prefix-$node
failCgroupV1: false
failSwapOn: false
address: $net.$((10 + i))
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
makeIPTablesUtilChains: false
clusterDNS: [$services.10]
clusterDomain: cluster.local
resolvConf: $d/resolv.conf
evictionHard: {"nodefs.available": "1%", "memory.available": "100Mi", "imagefs.available": "1%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 4s
podLogsDir: $d/pod-logs
containerRuntimeEndpoint: unix://$d/c.sock
Y
  make_cgroups "$node"
  start "containerd-$node" "$node" containerd -c "$d/containerd.toml"
  wait_for "containerd $node" ctr -a "$d/c.sock" version
  for image in "$@"; do
    case $image in
      *@*) [ "${image##*@}" = "$node" ] || continue ;;
    esac
    ctr -a "$d/c.sock" -n k8s.io images import "${image%@*}" >/dev/null
  done
  # One at a time: every kubelet of this machine replaces the same /var/lib/kubelet/device-plugins/kubelet.sock, and ends
  # when another one creates it between its own unlink and bind ("address already in use").
  {
    flock 8
    start "kubelet-$node" "$node" "$bin/kubelet" --kubeconfig="$state/kube/$node" --config="$d/kubelet.yaml" \
      --hostname-override="$node" --node-ip="$net.$((10 + i))" --root-dir="$d/kubelet" --cert-dir="$d/kubelet/pki" --v=1
    wait_for "the kubelet of $node" has_plugin_socket "$node"
  } 8>"$state/run/kubelet.lock"
}
has_plugin_socket() { in_ns "$1" ss -lxH | grep -q device-plugins/kubelet.sock; } # sockets are listed per network namespace

start_services() { # kube-proxy on every node, CoreDNS beside the API server behind the usual kube-dns service
  kc create clusterrolebinding kube-proxy --clusterrole=system:node-proxier --user=system:kube-proxy >/dev/null
  for node in $all_nodes; do
    cat >"$node/kube-proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $pods.0.0/16
hostnameOverride: $node
clientConnection: {kubeconfig: "$state/kube/proxy"}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0}
Y
    start "kube-proxy-$node" "$node" "$bin/kube-proxy" --config="$node/kube-proxy.yaml"
  done
  cat >Corefile <<Y
cluster.local:53 in-addr.arpa:53 {
  bind $api_address
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $state/kube/admin
    ttl 2
  }
}
.:53 {
  bind $api_address
  template ANY ANY {
    rcode NXDOMAIN
  }
}
Y
  start coredns cp "$bin/coredns" -conf Corefile
  kc apply -f - >/dev/null <<Y
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: $services.10, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
endpoints: [{addresses: [$api_address]}]
Y
}

# pretend accelerators: extended resources are only counted, so pods may ask for them
label_gpus() {
  local types i=0
  read -ra types <<<"${GPU_TYPES:-NVIDIA-A100-SXM4-80GB NVIDIA-L4}"
  for node in $all_nodes; do
    kc label node "$node" --overwrite "nvidia.com/gpu.product=${types[$((i % ${#types[@]}))]}" >/dev/null
    kc patch node "$node" --subresource=status --type=json \
      -p "[{\"op\":\"add\",\"path\":\"/status/capacity/nvidia.com~1gpu\",\"value\":\"${GPUS:-1}\"}]" >/dev/null
    i=$((i + 1))
  done
}

say "starting a Kubernetes cluster of $nodes nodes in $state"
make_network
make_identities
start_control_plane
say "API server is ready; starting nodes, importing $# images"
for i in $(seq "$nodes"); do start_node "$i" "$@" & starts+=($!); done
for pid in "${starts[@]}"; do wait "$pid" || die "a node did not start (logs: $state/log)"; done
start_services
for node in $all_nodes; do wait_for "node $node" kc get node "$node"; done
kc wait --for=condition=Ready node --all --timeout=60s >/dev/null
label_gpus
say "cluster is up after $SECONDS s: tests/cluster/kubectl get nodes"
