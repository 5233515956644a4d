// SPDX-License-Identifier: Apache-2.0
// Kubernetes objects with only the fields that the operator reads. decode.cpp drops the rest, since
// a pod is 10-20 kB of JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weir::api {

using Time = std::chrono::system_clock::time_point;

struct ObjectMeta {
  std::string name, namespace_name, uid, resource_version;
  std::int64_t generation = 0;
  std::map<std::string, std::string> labels, annotations;
  Time created{};
  std::optional<Time> deleting;  // deletionTimestamp: the end of the grace period, not its start
  std::int64_t deletion_grace_seconds = 0;
  std::string owner_uid;  // uid in the controlling owner reference
};

struct PodCondition {
  std::string type, status, reason, message;
  std::optional<Time> since;
};

// How a container ended.
struct ContainerEnd {
  std::string container;
  int exit_code = 0;
  std::string reason, message;  // e.g. "OOMKilled"; the message is one plain line (plain_line.h)
  std::optional<Time> time;
};

struct Pod {
  ObjectMeta meta;
  std::string node, phase;       // Pending Running Succeeded Failed Unknown
  std::string reason, message;   // reason, e.g. "Evicted", and message of its status
  bool containers_seen = false;  // a kubelet has reported containers
  std::vector<std::string> ips;
  std::vector<PodCondition> conditions;
  bool ready = false;  // condition Ready
  // The next four are about container trainer.
  std::optional<int> exit_code;
  std::string termination_reason, termination_message;  // e.g. "OOMKilled"; one plain line
  std::optional<Time> ended;
  bool started = false;
  // How often the kubelet has restarted the trainer, how it ended before that, and the exit codes
  // after which it stays ended. Nothing: it is never restarted.
  int container_restarts = 0;
  std::optional<ContainerEnd> last_end;
  std::optional<std::vector<int>> final_exit_codes;
  // Why the trainer, or an init container before it, waits, e.g. "ErrImagePull".
  std::string waiting_reason, waiting_message;
  std::optional<ContainerEnd> failed_init;  // the first init container that failed
  std::vector<std::string> gates;           // spec.schedulingGates
};

struct Service {
  ObjectMeta meta;
};

struct ConfigMap {
  ObjectMeta meta;
  std::map<std::string, std::string> data;
};

// PodGroup of scheduling.volcano.sh/v1beta1.
struct PodGroup {
  ObjectMeta meta;
  std::string phase;  // Pending Inqueue Running Unknown Completed; "" = no scheduler has set it
  std::string why;    // message of the condition Unschedulable if that is True
};

struct Taint {
  std::string key, value, effect;
};

struct Node {
  ObjectMeta meta;
  bool schedulable = true;
  std::vector<Taint> taints;
  std::map<std::string, std::string> allocatable;  // quantities
  int kubelet_minor = 0;                           // 35 for v1.35.4; 0 = unknown
  bool ready = true;
  std::optional<Time> ready_since, not_ready_since;  // at most one is set
};

// All nodes by name. Passes share the nodes, because a cluster has hundreds and a job uses few.
using NodeTable = std::map<std::string, std::shared_ptr<const Node>>;

}  // namespace weir::api
