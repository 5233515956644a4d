// SPDX-License-Identifier: Apache-2.0
// A complete plan inside the room: stages as ranges of a linear order, ranks on devices, k, caps;
// and its costs over their links: operator/planner/README.md "Stage and boundary costs". Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/placement/assign.h"
#include "operator/planner/graph/dag.h"
#include "operator/planner/report.h"
#include "operator/planner/setting.h"
#include "operator/planner/sync/step_forms.h"
#include "worker/schedule/simulator.h"
#include "worker/schedule/validate.h"

namespace weir::planner {

// Sums over prefixes of a topological order of the Dag.
struct Line {
  std::vector<int> nodes;                                                   // of the Dag
  std::vector<std::vector<std::int64_t>> forward, backward, update;         // [column][prefix], ns
  std::vector<std::vector<std::int64_t>> backward_input, backward_weights;  // the same
  std::vector<std::int64_t> parameters, frozen, stash;                      // bytes, by prefix
  std::vector<std::int64_t> held, in_backward;                              // bytes, by prefix
  std::vector<std::int64_t> cut;  // bytes across, by prefix
};
std::shared_ptr<const Line> line_of(const Dag& dag, std::vector<int> nodes);

struct Layout {
  std::shared_ptr<const Line> line;
  std::vector<int> first;         // S+1 positions in the line
  std::vector<int> kinds, ranks;  // S
  int k = 1;                      // of the caps
  std::vector<int> caps;
  placement::Assignment devices;  // [replica][stage][rank]; empty: not placed
  double seconds = 0;             // simulated step
  // Backwards in two parts (split.h); whole_seconds: the step without that.
  std::optional<schedule::Split> split;
  double whole_seconds = 0;

  std::size_t stages() const { return kinds.size(); }
  int device_count() const;
};

schedule::Schedule schedule_of(const Setting& setting, const Layout& layout);

// The pipeline of one replica. The layout must have devices.
Pipeline pipeline_of(const Setting& setting, const Layout& layout, std::size_t replica);
Pipeline pipeline_of(const Setting& setting, const Layout& layout, std::size_t replica,
                     const std::vector<double>& rings);
// Seconds in which the first and the last stage exchange the sums of tied tables, of the slowest
// replica; 0 without such tables or on one stage.
double tie_seconds(const Setting& setting, const Layout& layout);
std::vector<double> rings_of(const Setting& setting, const Layout& layout);  // AllReduce, by stage
schedule::PipelineModel simulated_model(const Pipeline& pipeline);
// Seconds of the step of all replicas, with AllReduce and optimizer; huge if it cannot run.
double simulated_step(const Setting& setting, const Layout& layout);
// The same when boundary b has `factor` times its share of the rate (b < 0: none).
double simulated_step(const Setting& setting, const Layout& layout, int boundary, double factor);
// T~ of the slowest replica: what placements are compared by.
double pivot_step(const Setting& setting, const Layout& layout);

// Bytes of a stage with split backwards.
schedule::StageMemory split_memory(const Setting& setting, const Layout& layout, std::size_t stage);
StageMemoryReport memory_of(const Setting& setting, const Layout& layout, std::size_t stage);
bool fits(const Setting& setting, const Layout& layout);

}  // namespace weir::planner
