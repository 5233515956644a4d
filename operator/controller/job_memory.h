// SPDX-License-Identifier: Apache-2.0
// The controller's memory of one job between passes. It may be lost with the process, because
// everything that must survive is in status or in ConfigMaps. The queue makes sure that only one
// reconcile thread at a time uses it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "operator/controller/reconcile/pass/snapshot.h"
#include "worker/base/clock.h"

namespace weir::controller {

struct JobMemory {
  std::string uid;  // of the job
  reconcile::AdaptationState adaptation;
  facts::Memo memo;
  std::optional<reconcile::TemplateCheck> template_check;
  SteadyTime template_checked{};
  std::optional<reconcile::ProfileView> profile;
  SteadyTime profile_read{};
  std::string replan_seen;  // value of annotation weir.dev/replan when the profile was read
  reconcile::RefusedRequests refused;
  reconcile::GangView gang;
  std::optional<SystemTime> status_written;
  // Owner of a foreign Service with the job's name, found when ours could not be made.
  std::optional<std::string> foreign_service_owner;
  SteadyTime foreign_seen{};
  std::set<std::string> taken_pod_names;                      // names of pods of others
  std::map<std::string, reconcile::PodWarning> pod_warnings;  // by uid
  std::optional<SystemTime> pods_confirmed;
  std::map<std::string, schedule::Plan> plans;  // decoded plans by uid of their ConfigMap
  std::string env_conflicts_reported;           // variables in the last event about them
  // Revision and time of the newest plan made here, until the workers run it.
  std::optional<std::pair<std::int64_t, SteadyTime>> plan_made;
};

}  // namespace weir::controller
