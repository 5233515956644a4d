// SPDX-License-Identifier: Apache-2.0
// What the planner knows: the model's layers with times and sizes per device class, and the
// cluster. Plain data (planner.md 1).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weir::planner {

struct LayerTime {
  int samples = 1;  // of one micro-batch
  std::chrono::nanoseconds forward{0}, backward{0}, update{0};
};

enum class Scaling : unsigned char { kInterpolate, kProportional };

struct Layer {
  std::string id, description;
  std::int64_t parameter_bytes = 0;
  std::int64_t output_bytes_per_sample = 0;
  std::int64_t stash_bytes_per_sample = 0;
  std::int64_t transient_bytes_per_sample = 0, transient_bytes = 0;
  std::map<std::string, std::vector<LayerTime>> times;  // by device class, rising samples
};

struct Model {
  std::string name, digest;
  double state_factor = 4;  // bytes held per parameter byte
  Scaling scaling = Scaling::kInterpolate;
  std::vector<Layer> layers;
  std::vector<std::pair<int, int>> edges;  // empty: a chain in the order of layers
};

struct Device {  // one rank
  std::string pod, pod_uid, ip, node, device_class, worker_group;
  int local = 0;
  int data_port = 7071;
  int first_stage = 0, last_stage = 255;  // stageRange of its group
  std::int64_t memory_bytes = 0;          // 0 = unknown: not a limit
};

struct LinkRate {
  std::string from_node, to_node;
  double bytes_per_second = 1.25e9;  // what co-tenants leave
  std::chrono::nanoseconds latency{50'000};
};

struct Cluster {
  std::vector<Device> devices;
  std::vector<LinkRate> links;               // one direction each; others: the default
  double default_bytes_per_second = 1.25e9;  // an unprobed link (operator.md 5)
  std::chrono::nanoseconds default_latency{50'000};
  double memory_reserve = 0.10;
};

// Times of `samples` samples through one layer on one device class: by Scaling; a class without
// times uses the first class.
LayerTime layer_time(const Model& model, const Layer& layer, const std::string& device_class,
                     int samples);
// The link from one node to another; same node: 12e9 B/s, 5 us (planner.md 1.5).
LinkRate link_between(const Cluster& cluster, const std::string& from_node,
                      const std::string& to_node);

}  // namespace weir::planner
