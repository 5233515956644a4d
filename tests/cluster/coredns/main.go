// SPDX-License-Identifier: Apache-2.0
// CoreDNS with the plugins that the test cluster's Corefile names, and none of the cloud libraries of the others.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/coremain"
)

func main() { coremain.Run() }
