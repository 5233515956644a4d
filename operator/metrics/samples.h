// SPDX-License-Identifier: Apache-2.0
// Turns the series of the window query into samples of one job. Labels and values come from scraped
// pods and are not trusted. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/estimator/estimates.h"
#include "operator/estimator/replica_model.h"
#include "operator/metrics/matrix.h"
#include "worker/base/clock.h"

namespace weir::metrics {

// The series of one job that are accepted: those of its own pods and, unless the label is "", with
// the job's namespace in the label that Prometheus sets.
struct Believed {
  std::vector<const Series*> series;                  // point into the matrix
  std::size_t other_namespace = 0, other_worker = 0;  // numbers of dropped series
};
Believed believed(const Matrix& matrix, const std::string& key, const std::set<std::string>& pods,
                  const std::string& namespace_label);
std::string key_of(const Series& series);  // "namespace/name"

std::optional<int> number(const std::string& text);  // digits only
// Reads the labels replica, link and dir: "0", "1-2", "fwd"; or "2", "s1:r0-r2", "sync" for the
// link of stage 1 from replica 0 to replica 2. Nothing if they have another form.
std::optional<estimator::LinkKey> link_of(const Series& series);

using LastSeen = std::map<std::string, SystemTime>;  // time of the newest weir_step by worker
LastSeen last_seen_of(const Believed& job);
// The highest weir_step among workers whose last sample is not older than `oldest`. Without this
// limit a dead worker would count, because Prometheus returns its last value for 5 min.
std::optional<std::int64_t> step_of(const Believed& job, const LastSeen& last_seen,
                                    SystemTime oldest);
// One Scrape per grid point at which a link had traffic. sync: links between replicas, else links
// between stages. If two series are about one link (its worker was replaced, or its peer moved),
// the worker that was seen last wins, then the series that began later.
std::vector<estimator::Scrape> scrapes_of(const Believed& job, const LastSeen& last_seen,
                                          bool sync);
// Counters of all replicas per grid point. Both counters of a replica come from the same worker;
// workers that were seen lately come first, others replace them only if they have none.
std::vector<estimator::ReplicaScrape> replica_scrapes_of(const Believed& job,
                                                         const LastSeen& last_seen);
// Bytes of packed sums over the same before packing: the median of the workers, each with its
// newest value, so no single one decides. Nothing if no worker packs.
std::optional<double> packed_part_of(const Believed& job);

}  // namespace weir::metrics
