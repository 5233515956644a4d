// SPDX-License-Identifier: Apache-2.0
// Graphs for the planner's tests: the files in tests/data/planner and random ones.
#pragma once

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "operator/planner/graph/dag.h"
#include "operator/planner/model/graph_text.h"

namespace weir::planner {

inline std::string text_of_file(const std::string& path) {
  std::ifstream file(std::string(WEIR_SOURCE_DIR) + "/tests/data/planner/" + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A graph of PipeDream's, one class, one micro-batch = the profiled mini-batch.
inline Dag pipedream_graph(const std::string& name) {
  const Result<Model> model = decode_graph(text_of_file("pipedream/" + name + ".txt"), name);
  if (!model.ok()) return {};
  Result<Dag> dag = dag_of(*model, {DagClass{}}, 1);
  return dag.ok() ? *std::move(dag) : Dag{};
}

// Nodes in topological order; each pair is an edge with probability `density`.
inline Dag random_graph(std::mt19937& random, int nodes, double density, int classes = 1) {
  const auto up_to = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
  Dag dag;
  dag.nodes = nodes;
  dag.classes.resize(static_cast<std::size_t>(classes));
  for (int i = 0; i < nodes; ++i) {
    for (DagTimes& times : dag.classes) {
      times.forward.push_back(1'000'000LL * up_to(20));
      times.backward.push_back(1'000'000LL * up_to(40));
      times.update.push_back(0);
    }
    dag.parameters.push_back(1'000'000LL * up_to(30));
    dag.output.push_back(1'000'000LL * up_to(20));
    dag.stash.push_back(dag.output.back());
    dag.transient.push_back(0);
  }
  std::vector<std::pair<int, int>> edges;
  for (int from = 0; from < nodes; ++from) {
    for (int to = from + 1; to < nodes; ++to) {
      if (std::uniform_real_distribution<>(0, 1)(random) < density) edges.emplace_back(from, to);
    }
  }
  return dag_from(std::move(dag), edges);
}

}  // namespace weir::planner
