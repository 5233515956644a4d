// SPDX-License-Identifier: Apache-2.0
// Devices and the links between them, as the planner knows them. Plain data. The fields:
// operator/planner/model/README.md "cluster.json". The operator fills it from nodes, pods and link
// estimates, `weir-operator plan` from cluster.json.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weir::planner {

struct Device {  // one rank
  std::string pod, pod_uid, ip, node, device_class, worker_group;
  int local = 0;
  int data_port = 7071;
  int first_stage = 0, last_stage = 255;  // stageRange of its group
  std::int64_t memory_bytes = 0;          // 0 = unknown: not a limit
};

// GB/s of a message of n bytes = a x^2 + b x + c with x = log2(n / 1e6); for a < 0 x is at most
// -b / 2a. The result is kept within 1 MB/s .. most (Sailor's curves).
struct RateCurve {
  double a = 0, b = 0, c = 0;
  double most_bytes_per_second = 1.25e9;
  bool operator==(const RateCurve&) const = default;
};

struct LinkRate {
  std::string from_node, to_node;    // equal: device to device inside the node
  double bytes_per_second = 1.25e9;  // without a curve
  std::chrono::nanoseconds latency{50'000};
  double available_share = 1;           // what co-tenants leave of the rate
  std::optional<RateCurve> curve = {};  // instead of bytes_per_second
};

struct DeviceClass {
  std::string name;
  std::int64_t memory_bytes = 0;
  double memory_reserve = 0.10;  // fraction kept free
  double speed_factor = 1;       // time multiplier; used only where the profile has no times
};

struct Cluster {
  std::vector<Device> devices;
  std::vector<LinkRate> links;               // one direction each, later ones win; others: default
  double default_bytes_per_second = 1.25e9;  // an unprobed link
  std::chrono::nanoseconds default_latency{50'000};
  double memory_reserve = 0.10;      // of devices whose class is not listed
  std::vector<DeviceClass> classes;  // may be empty
  double default_share = 1;
  std::optional<RateCurve> default_curve = {};
};

// The link from one node to another. Same node: as listed, else 12e9 B/s, 5 us.
LinkRate link_between(const Cluster& cluster, const std::string& from_node,
                      const std::string& to_node);
// Bytes a second of a message of that size, what co-tenants leave.
double effective_rate(const LinkRate& link, std::int64_t message_bytes);
// Latency + bytes / effective rate of a message of that size.
double transfer_seconds(const LinkRate& link, std::int64_t bytes);
// Fraction of this device's memory that plans leave free.
double reserve_of(const Cluster& cluster, const Device& device);
// memory_bytes without the reserve; 0 = no limit.
std::int64_t usable_bytes(const Cluster& cluster, const Device& device);

}  // namespace weir::planner
