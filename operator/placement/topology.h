// SPDX-License-Identifier: Apache-2.0
// Devices on servers and the measured links between them, by index. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/planner/model/cluster.h"

namespace weir::placement {

class Topology {
 public:
  explicit Topology(const planner::Cluster& cluster);

  int servers() const { return static_cast<int>(names_.size()); }
  int devices() const { return static_cast<int>(server_of_.size()); }
  int server_of(int device) const { return server_of_[static_cast<std::size_t>(device)]; }
  const std::vector<int>& devices_on(int server) const {  // in rising order
    return devices_on_[static_cast<std::size_t>(server)];
  }
  const std::string& server_name(int server) const {
    return names_[static_cast<std::size_t>(server)];
  }
  const planner::LinkRate& link(int from_device, int to_device) const;
  // A number that is equal for servers that may be exchanged without any effect on the time of a
  // plan: the cluster lists no link of them to other servers, and their inner links are equal.
  int alike(int server) const { return alike_[static_cast<std::size_t>(server)]; }

 private:
  std::vector<std::string> names_;
  std::vector<int> server_of_, alike_;
  std::vector<std::vector<int>> devices_on_;
  std::map<std::pair<int, int>, planner::LinkRate> listed_;
  std::vector<int> rate_of_;  // [from server][to server]: index into rates_; empty if too many
  std::vector<planner::LinkRate> rates_;
  planner::LinkRate usual_, local_;
};

}  // namespace weir::placement
