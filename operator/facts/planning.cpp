// SPDX-License-Identifier: Apache-2.0
#include "operator/facts/planning.h"

#include <algorithm>
#include <map>
#include <utility>

#include "operator/facts/node_bandwidth.h"
#include "operator/planner/model/profile_json.h"
#include "worker/schedule/families.h"
#include "worker/schedule/neighbors.h"

namespace weir::facts {
namespace {

// So many slow nodes are left out one after another, then all at once.
constexpr std::size_t kTriedWithout = 3;
constexpr const char* kHostDevice = "cpu";  // classes "cpu" and "cpu-<threads>"

const Worker* worker_of_pod(const Facts& facts, const std::string& uid) {
  const auto found = std::ranges::find(facts.workers, uid, &Worker::pod_uid);
  return found == facts.workers.end() ? nullptr : &*found;
}

planner::Request request_of(const Facts& facts) {
  const auto& spec = facts.spec;
  planner::Request request;
  request.data_parallel = facts.planned_replicas;
  request.global_batch = spec.global_batch;
  request.micro_batch_size = spec.micro_batch_size;
  request.stages = spec.stages;
  request.family = family_of(spec.schedule.type);
  request.dispatch = dispatch_of(spec);
  request.k_min = spec.schedule.k_min;
  request.k_max = spec.schedule.k_max.value_or(8);
  request.k_initial = spec.schedule.k_initial;
  request.caps = spec.schedule.in_flight_caps;
  return request;
}

// Decodes a profile, or takes it from the memo. A profile of thousands of layers takes longer to
// decode than to plan with.
Result<planner::Model> decoded(const std::string& text, Memo* memo) {
  if (memo == nullptr) return planner::decode_profile(text);
  if (!memo->model || memo->profile != text) {
    WEIR_TRY(memo->model, planner::decode_profile(text));
    memo->profile = text;
  }
  return *memo->model;
}

// Every replica has the same stages on the same kinds of devices. If the devices of a group cannot
// be shared evenly between the replicas, the group counts as its most frequent class with the least
// memory. A device that is slower shows in the step times of its replica.
void level_devices(planner::Cluster& cluster, int replicas) {
  if (replicas < 2) return;
  std::map<std::string, std::map<std::pair<std::string, std::int64_t>, int>> groups;
  for (const auto& device : cluster.devices)
    ++groups[device.worker_group][{device.device_class, device.memory_bytes}];
  for (const auto& [group, kinds] : groups) {
    if (std::all_of(kinds.begin(), kinds.end(),
                    [&](const auto& kind) { return kind.second % replicas == 0; }))
      continue;
    std::map<std::string, int> classes;
    for (const auto& [kind, count] : kinds) classes[kind.first] += count;
    const bool one_class_each = std::all_of(classes.begin(), classes.end(), [&](const auto& entry) {
      return entry.second % replicas == 0;
    });
    const auto usual =
        std::max_element(classes.begin(), classes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto least_memory = [&](const std::string& of) {
      std::int64_t least = 0;  // unknown
      for (const auto& [kind, count] : kinds) {
        const bool counts = kind.second > 0 && (of.empty() || kind.first == of);
        if (counts && (least == 0 || kind.second < least)) least = kind.second;
      }
      return least;
    };
    for (auto& device : cluster.devices) {
      if (device.worker_group != group) continue;
      if (!one_class_each) device.device_class = usual->first;
      device.memory_bytes = least_memory(one_class_each ? device.device_class : "");
    }
  }
}

}  // namespace

schedule::Family family_of(const std::string& type) {
  return schedule::family_of(type).value_or(schedule::Family::kKfkb);
}

schedule::Dispatch dispatch_of(const api::JobSpec& spec) {
  return spec.schedule.dispatch == "Strict" ? schedule::Dispatch::kStrict
                                            : schedule::Dispatch::kHint;
}

const protocol::Member* older_than(const Facts& facts, int plan_version) {
  if (facts.members == nullptr) return nullptr;
  for (const auto& member : facts.members->members) {
    if (member.plan_version < plan_version) return &member;
  }
  return nullptr;
}

std::string why_whole(const Facts& facts, const planner::Model* model) {
  const auto& wanted = facts.spec.schedule;
  if (wanted.split == api::SplitMode::kNever) return "schedule.split is Never";
  if (!schedule::rules_of(family_of(wanted.type)).tuned) return "schedule.type is " + wanted.type;
  if (!wanted.in_flight_caps.empty()) return "schedule.inFlightCaps are fixed";
  if (facts.members == nullptr) return "the workers have not registered";
  if (const auto* old = older_than(facts, protocol::kSplitPlanVersion)) {
    return "worker " + old->pod + " reads no plan with split backwards";
  }
  const auto splits = [](const planner::Layer& layer) {
    return std::ranges::any_of(layer.times, [](const auto& times) {
      return std::ranges::any_of(times.second, [](const planner::LayerTime& time) {
        return time.backward_weights.count() > 0;
      });
    });
  };
  if (model != nullptr && std::ranges::none_of(model->layers, splits)) {
    return "the profile has no layer whose backward splits";
  }
  return "";
}

int least_share(const schedule::Plan& plan) {
  const auto least = std::min_element(plan.micro_batches.begin(), plan.micro_batches.end());
  return least == plan.micro_batches.end() ? 1 : *least;
}

std::vector<int> even_shares(int micro_batches, int replicas) {
  std::vector<int> shares(static_cast<std::size_t>(replicas), micro_batches / replicas);
  for (int r = 0; r < micro_batches % replicas; ++r) ++shares[static_cast<std::size_t>(r)];
  return shares;
}

std::optional<planner::Model> model_of(const Facts& facts, std::string& why_not,
                                       bool count_copies) {
  const bool from_config_map = facts.spec.profile.source == api::ProfileSource::kConfigMap;
  const std::string where = from_config_map ? "ConfigMap " + facts.spec.profile.config_map +
                                                  ", key " + facts.spec.profile.key
                                            : "the profile that the workers measured";
  const std::string* text = nullptr;
  if (from_config_map) text = facts.profile;
  if (!from_config_map && facts.members) text = &facts.members->profile_json;
  if (text == nullptr || text->empty()) {
    why_not = where + ": missing";
    return std::nullopt;
  }
  auto model = decoded(*text, facts.memo);
  if (!model) {
    why_not = where + ": " + model.error().message;
    return std::nullopt;
  }
  const int layers = facts.members ? facts.members->model.layers : 0;
  if (layers > 0 && static_cast<int>(model->layers.size()) != layers) {
    why_not = where + ": has " + std::to_string(model->layers.size()) +
              " layers, the workers' model " + facts.members->model.name + " has " +
              std::to_string(layers);
    return std::nullopt;
  }
  if (count_copies && needs_copies(facts)) return with_copies(std::move(*model));
  return std::move(*model);
}

bool needs_copies(const Facts& facts) {
  const api::JobSpec& spec = facts.spec;
  if (spec.neighbor_copies != api::NeighborCopies::kOn || spec.max_lost_steps == 0 ||
      spec.restart_scope != api::RestartScope::kWorker || facts.planned_replicas > 1 ||
      facts.members == nullptr || facts.workers.size() < 2) {
    return false;
  }
  return std::ranges::any_of(facts.members->members, [](const protocol::Member& member) {
    return !member.ranks.empty() && member.ranks.front().device.starts_with(kHostDevice);
  });
}

planner::Model with_copies(planner::Model model) {
  constexpr int kCopies = schedule::kSnapshotCopies + schedule::kNeighborCopies;
  // The bytes of frozen parameters may include those of a save.
  const bool saves = model.state_factor >= schedule::kStateFactor + schedule::kCopyFactor;
  for (planner::Layer& layer : model.layers) {
    layer.frozen_bytes += kCopies * (saves ? layer.frozen_bytes / 2 : layer.frozen_bytes);
  }
  model.state_factor += kCopies * schedule::kCopyFactor;
  return model;
}

std::string lack_for_copies(const planner::PlanReport& report, const planner::Model& model) {
  const planner::Model counted = with_copies(model);
  std::int64_t most = 0;
  std::string text;
  for (std::size_t stage = 0; stage < report.memory.size(); ++stage) {
    std::int64_t need = 0;
    for (const int layer : report.stages[stage].nodes) {
      const auto held = [layer](const planner::Model& one) {
        const planner::Layer& of = one.layers[static_cast<std::size_t>(layer)];
        return planner::state_bytes(one.state_factor, of.parameter_bytes, of.frozen_bytes);
      };
      need += held(counted) - held(model);
    }
    const planner::StageMemoryReport& memory = report.memory[stage];
    const std::int64_t free = memory.limit_bytes - memory.total_bytes;
    if (memory.limit_bytes == 0 || need - free <= most) continue;
    most = need - free;
    const auto rank =
        std::ranges::find(report.plan.ranks, static_cast<int>(stage), &schedule::RankPlace::stage);
    text = (rank == report.plan.ranks.end() ? "" : rank->pod + ": ") +
           schedule::no_room_for_copies(need, free);
  }
  return text;
}

Result<planner::PlanReport> plan_for_members(const Facts& facts, const planner::Model& model) {
  return plan_for_members(facts, model, cluster_of(facts));
}

Result<planner::PlanReport> plan_for_members(const Facts& facts, const planner::Model& model,
                                             const planner::Cluster& cluster, int plans) {
  planner::Request request = request_of(facts);
  request.current = facts.plan;
  request.split = why_whole(facts, &model).empty();
  Memo* memo = facts.memo;
  return planner::plan(model, cluster, request, planner::operator_limits(plans),
                       memo == nullptr ? nullptr : &memo->plans);
}

planner::Cluster cluster_of(const Facts& facts) {
  planner::Cluster cluster;
  if (!facts.members) return cluster;
  auto members = facts.members->members;
  std::sort(members.begin(), members.end(),
            [](const auto& a, const auto& b) { return a.worker_index < b.worker_index; });
  for (const auto& member : members) {
    const Worker* worker = worker_of_pod(facts, member.pod_uid);
    if (worker == nullptr || worker->replica >= facts.planned_replicas) continue;
    planner::Device device;
    device.pod = member.pod;
    device.pod_uid = member.pod_uid;
    device.ip = member.ips.empty() ? "" : member.ips.front();
    device.node = member.node;
    device.data_port = member.data_port;
    device.worker_group = worker->group;
    if (!member.ranks.empty()) {
      device.device_class = member.ranks.front().device;
      device.memory_bytes = member.ranks.front().memory_bytes;
    }
    for (const auto& group : facts.spec.worker_groups) {
      if (group.name != device.worker_group || !group.stage_range) continue;
      device.first_stage = group.stage_range->first;
      device.last_stage = group.stage_range->last;
    }
    cluster.devices.push_back(std::move(device));
  }
  level_devices(cluster, facts.planned_replicas);
  // Probes are for the first plan only: a tenant that was there at the start may be gone, and what
  // looks slow then would be avoided for ever.
  if (facts.plan == nullptr) add_probed_links(facts.members->links, cluster);
  for (const auto* links : {&facts.estimates.sync_links, &facts.estimates.links}) {
    for (const auto& link : *links) {
      if (link.now > 0)
        cluster.links.push_back({link.from_node, link.to_node, link.now, cluster.default_latency});
    }
  }
  return cluster;
}

// The planner searches cuts with one link for all devices of a kind: the best one, then the one of
// the best placement. So a slow node among equal devices hides the cut that uses all others: with
// the best link more stages look better, with the slow one fewer. Therefore it also plans without
// the slowest node, without the slowest two, and so on. Not all slow nodes are left out at first,
// because a node that is hardly slow may be worth its layers.
std::vector<planner::Cluster> on_known_links(const std::vector<RememberedLink>& seen,
                                             planner::Cluster cluster) {
  const auto nodes = nodes_of(cluster);
  add_inferred_links(seen, cluster);
  std::vector<std::pair<double, std::string>> slow;
  for (const auto& [node, share] : slow_nodes(seen)) {
    if (nodes.contains(node)) slow.emplace_back(std::min(share.out, share.in), node);
  }
  std::ranges::sort(slow);
  std::vector<planner::Cluster> clusters{cluster};
  for (std::size_t i = 0; i < slow.size(); ++i) {
    std::erase_if(cluster.devices,
                  [&](const auto& device) { return device.node == slow[i].second; });
    if (cluster.devices.empty()) break;
    if (i < kTriedWithout || i + 1 == slow.size()) clusters.push_back(cluster);
  }
  return clusters;
}

void limit_caps(const Facts& facts, schedule::Plan& plan) {
  auto& schedule = plan.schedule;
  const auto& wanted = facts.spec.schedule;
  if (schedule.split && !why_whole(facts, nullptr).empty()) {
    schedule.split.reset();
    schedule.dispatch = schedule::dispatch_in_force(schedule, dispatch_of(facts.spec));
  }
  if (facts.status.memory_limits.empty() || !schedule::rules_of(schedule.family).tuned ||
      !wanted.in_flight_caps.empty())
    return;
  for (const auto& limit : facts.status.memory_limits) {
    if (limit.stage < 0 || limit.stage >= plan.stage_count() || limit.in_flight_cap <= 0) continue;
    int& cap = schedule.caps[static_cast<std::size_t>(limit.stage)];
    cap = std::min(cap, limit.in_flight_cap);
    if (schedule.split) {
      int& held = schedule.split->held[static_cast<std::size_t>(limit.stage)];
      held = std::min(held, limit.in_flight_cap);
    }
  }
  for (std::size_t s = 1; s < schedule.caps.size(); ++s)
    schedule.caps[s] = std::min(schedule.caps[s], schedule.caps[s - 1]);
  if (wanted.k_mode != api::KMode::kFixed) {
    schedule.k = std::min(schedule.k, std::max(schedule::k_of_caps(schedule.caps), wanted.k_min));
  }
  schedule.dispatch = schedule::dispatch_in_force(schedule, dispatch_of(facts.spec));
}

}  // namespace weir::facts
