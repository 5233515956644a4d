// SPDX-License-Identifier: Apache-2.0
// What the series of the window query say of one job. Labels and values come from whoever is
// scraped and are not trusted. Pure.
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

// The series of one job that may be believed: of its own pods and, unless the label is "", with its
// namespace in the label that Prometheus sets.
struct Believed {
  std::vector<const Series*> series;  // of the matrix
  std::size_t other_namespace = 0, other_worker = 0;
};
Believed believed(const Matrix& matrix, const std::string& key, const std::set<std::string>& pods,
                  const std::string& namespace_label);
std::string key_of(const Series& series);  // "namespace/name"

std::optional<int> number(const std::string& text);  // not negative, and nothing else
// From labels replica "0", link "1-2", dir "fwd"; or "2", "s1:r0-r2", "sync": stage 1, from replica
// 0. Nothing: not a link of ours.
std::optional<estimator::LinkKey> link_of(const Series& series);

using LastSeen = std::map<std::string, SystemTime>;  // newest weir_step by worker
LastSeen last_seen_of(const Believed& job);
// The highest of the workers that were seen since `oldest`: Prometheus answers with the last value
// for 5 min.
std::optional<std::int64_t> step_of(const Believed& job, const LastSeen& last_seen,
                                    SystemTime oldest);
// One Scrape per grid point at which some link had traffic; sync: of those between replicas, else
// between stages. A link that two series claim (its worker was replaced, or its peer moved) is that
// of the worker seen last, then of the newer series.
std::vector<estimator::Scrape> scrapes_of(const Believed& job, const LastSeen& last_seen,
                                          bool sync);
// Both counters of a replica come from one worker: the most trusted one that has them.
std::vector<estimator::ReplicaScrape> replica_scrapes_of(const Believed& job,
                                                         const LastSeen& last_seen);

}  // namespace weir::metrics
