// SPDX-License-Identifier: Apache-2.0

// Package plugins registers the service discovery that the test cluster's Prometheus has beside those by file and HTTP. It takes the place
// of Prometheus' own list (tests/cluster/build.sh).
package plugins

import (
	_ "github.com/prometheus/prometheus/discovery/kubernetes"
)
