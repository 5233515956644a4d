// SPDX-License-Identifier: Apache-2.0
// PipeDream's and DAPPLE's profiles (operator/planner/model/README.md "graph.txt"): text to a Model
// whose layers are in topological order, independent of the order of the lines. One sample of it is
// the profiled mini-batch; times are of class "" and scale in proportion. No file access.
#pragma once

#include <string_view>

#include "operator/planner/model/model.h"
#include "worker/base/result.h"

namespace weir::planner {

// kInvalid: "name:line: reason"; `name` is the file's name in messages. Limits: 64 MiB, 65,536
// nodes, 1,048,576 edges.
Result<Model> decode_graph(std::string_view text, std::string_view name);

// Whether a text looks like graph.txt: its first non-blank character starts no JSON object.
bool looks_like_graph(std::string_view text);

}  // namespace weir::planner
