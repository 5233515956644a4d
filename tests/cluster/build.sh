#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs of a Kubernetes 1.35 cluster from Go modules, once per go.sum, into the user's cache. All are of one module,
# so that what they share is compiled once.
# usage: build.sh [scale|kueue]   prints the directory of the programs. 20 min on 2 cores the first time, beside the images (5 GB
#                of Go caches), 0 s after that. scale: also kwok, and Kubeflow's training-operator, with which the scale suite compares (2 min);
#                kueue: also Kueue's manager and its configuration (5 min)
set -euo pipefail
# shellcheck source=env.sh
. "$(dirname "$0")/env.sh"
case ${1:-} in -h | --help) usage; exit 0 ;; '' | scale | kueue) ;; *) usage >&2; exit 2 ;; esac

programs=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl kubelet etcd coredns helm prometheus promtool)
[ "${1:-}" != scale ] || programs+=(kwok training-operator.v1)
[ "${1:-}" != kueue ] || programs+=(kueue kueue-config) # the second is a folder
complete() { for program in "${programs[@]}"; do [ -x "$bin/$program" ] || return 1; done; }
if complete; then echo "$bin"; exit 0; fi
mkdir -p "$bin"
exec 9>"$bin/.lock"
flock -n 9 || { say "another build of the cluster programs is running; waiting for it"; flock 9; }
if complete; then echo "$bin"; exit 0; fi

PATH=$("$here/setup.sh"):$PATH
log=$bin/build.log
version_package=k8s.io/component-base/version
cd "$here"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes 2>>"$log")
minor=${version#v1.}; minor=${minor%%.*}
# without these -X flags the server calls itself v0.0.0-master and Helm's kubeVersion checks fail
ldflags="-s -w -X $version_package.gitVersion=$version -X $version_package.gitMajor=1 -X $version_package.gitMinor=$minor
         -X $version_package.gitTreeState=clean"

build() { # NAME go-command...: builds NAME by a command that writes to $bin, unless it is there
  local name=$1 begin=$SECONDS; shift
  [ -x "$bin/$name" ] && return
  say "building $name ..."
  "$@" >>"$log" 2>&1 || { tail -20 "$log" >&2; die "building $name failed, see $log"; }
  say "built $name in $((SECONDS - begin)) s"
}
export CGO_ENABLED=0
# The compiler and the linker collect garbage less often: a quarter less time, for more memory, but seldom beyond 3 GB each.
export GOGC=400 GOMEMLIMIT=3GiB
kubernetes=() # in one command: while one is linked, which takes one core, others are compiled
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl kubelet; do
  [ -x "$bin/$name" ] || kubernetes+=("k8s.io/kubernetes/cmd/$name")
done
[ ${#kubernetes[@]} -eq 0 ] || build "Kubernetes (most of the time)" go build -trimpath -ldflags "$ldflags" -o "$bin/" "${kubernetes[@]}"
small() { build "$1" go build -trimpath -ldflags "-s -w" -o "$bin/$1" "$2"; }
small etcd go.etcd.io/etcd/server/v3
small coredns ./coredns
small helm helm.sh/helm/v3/cmd/helm
# With Kubernetes' service discovery, which Debian's Prometheus lacks, and no other: its list of plugins is replaced in a copy of its
# module. The programming interface of one cloud alone takes four minutes to compile.
build_prometheus() {
  local module=github.com/prometheus/prometheus copy=$bin/prometheus-source
  rm -rf "$copy"
  go mod download $module && cp -r "$(go list -m -f '{{.Dir}}' $module)" "$copy" && chmod -R u+w "$copy" || return 1
  [ -f "$copy/plugins/plugins.go" ] || { echo "Prometheus keeps its plugins elsewhere by now"; return 1; }
  cp prometheus/plugins.go "$copy/plugins/plugins.go"
  cp go.sum "$bin/prometheus.sum" && cp go.mod "$bin/prometheus.mod" && go mod edit -replace="$module=$copy" "$bin/prometheus.mod" || return 1
  go build -modfile="$bin/prometheus.mod" -trimpath -ldflags "-s -w -X github.com/prometheus/common/version.Version=3.7.3" -o "$bin/" \
    $module/cmd/prometheus $module/cmd/promtool || return 1
  rm -rf "$copy"
}
{ [ -x "$bin/prometheus" ] && [ -x "$bin/promtool" ]; } || build "Prometheus and promtool" build_prometheus
if [ "${1:-}" = scale ]; then # modules of their own: their versions clash with Kubernetes'
  peer=github.com/kubeflow/training-operator
  build kwok env GOBIN="$bin" go install -trimpath -ldflags "-s -w" sigs.k8s.io/kwok/cmd/kwok@v0.7.0
  build training-operator.v1 env GOBIN="$bin" go install -trimpath -ldflags "-s -w" $peer/cmd/training-operator.v1@v1.8.1
  cp -f "$(go list -m -f '{{.Dir}}' $peer@v1.8.1)/manifests/base/crds/kubeflow.org_pytorchjobs.yaml" "$bin/"
fi
if [ "${1:-}" = kueue ]; then
  peer=sigs.k8s.io/kueue
  build kueue env GOBIN="$bin" go install -trimpath -ldflags "-s -w" $peer/cmd/kueue@v0.17.0
  rm -rf "$bin/kueue-config.part"
  cp -r "$(go list -m -f '{{.Dir}}' $peer@v0.17.0)/config" "$bin/kueue-config.part"
  chmod -R u+w "$bin/kueue-config.part"
  rm -rf "$bin/kueue-config"
  mv "$bin/kueue-config.part" "$bin/kueue-config"
fi
complete || die "a program is missing in $bin"
echo "$bin"
