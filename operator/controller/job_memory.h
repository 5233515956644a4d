// SPDX-License-Identifier: Apache-2.0
// What the controller remembers of one job between passes. Lost with the process, which is
// harmless: everything that must survive is in status or in ConfigMaps. One reconcile thread at a
// time uses it (the queue sees to that).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "operator/controller/reconcile/snapshot.h"
#include "worker/base/clock.h"

namespace weir::controller {

struct JobMemory {
  std::string uid;  // of the job that all below belongs to
  reconcile::AdaptationState adaptation;
  reconcile::Memo memo;
  std::optional<reconcile::TemplateCheck> template_check;
  SteadyTime template_checked{};
  std::optional<reconcile::ProfileView> profile;
  SteadyTime profile_read{};
  std::string replan_seen;  // annotation weir.dev/replan at the time the profile was read
  reconcile::RefusedRequests refused;
  reconcile::GangView gang;
  std::optional<SystemTime> status_written;
  // A Service of our name that is not ours, seen when ours could not be made.
  std::optional<std::string> foreign_service_owner;
  SteadyTime foreign_seen{};
  std::set<std::string> taken_pod_names;                      // others have them
  std::map<std::string, reconcile::PodWarning> pod_warnings;  // by uid
  std::optional<SystemTime> pods_confirmed;
  std::map<std::string, schedule::Plan> plans;  // decoded, by uid of their ConfigMap
  std::string env_conflicts_reported;           // names, so that the event is sent once
  // The newest plan made here and when, until the workers run it.
  std::optional<std::pair<std::int64_t, SteadyTime>> plan_made;
};

}  // namespace weir::controller
