// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/graph/dag.h"

#include <gtest/gtest.h>

namespace weir::planner {
namespace dag_test {

using std::chrono::nanoseconds;

Layer layer(const std::string& id, std::vector<LayerTime> times) {
  Layer result;
  result.id = id;
  result.parameter_bytes = 3;
  result.output_bytes_per_sample = 10;
  result.stash_bytes_per_sample = 20;
  result.stash_bytes = 3;
  result.transient_bytes_per_sample = 2;
  result.transient_bytes = 5;
  result.times["A"] = std::move(times);
  return result;
}

Model three_layers() {
  Model model;
  model.state_factor = 2;
  for (const char* id : {"x", "y", "z"}) {
    model.layers.push_back(layer(id, {{1, nanoseconds(100), nanoseconds(200), nanoseconds(7)},
                                      {2, nanoseconds(120), nanoseconds(240), nanoseconds(7)}}));
  }
  return model;
}

TEST(Dag, OfAModelWithoutEdgesIsAChain) {
  const Result<Dag> dag = dag_of(three_layers(), {{"A"}}, 4);

  ASSERT_TRUE(dag.ok());
  EXPECT_TRUE(dag->chain());
  EXPECT_EQ(dag->layer, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(dag->output[1], 40);
  EXPECT_EQ(dag->stash[1], 83);
  EXPECT_EQ(dag->transient[1], 13);
  EXPECT_EQ(dag->parameters[1], 3);
  EXPECT_EQ(dag->state_factor, 2);
  EXPECT_EQ(dag->classes[0].forward[0], 240);
  EXPECT_EQ(dag->classes[0].update[0], 7);
}

TEST(Dag, OfAModelThatSaysItHasNoEdgesIsNoChain) {
  Model model = three_layers();
  model.edges_given = true;
  const Result<Dag> dag = dag_of(model, {{"A"}}, 1);
  ASSERT_TRUE(dag.ok());
  EXPECT_FALSE(dag->chain());
  EXPECT_TRUE(dag->successors[0].empty());
}

TEST(Dag, IsInTopologicalOrderAndCountsAnEdgeOnce) {
  Model model = three_layers();
  model.edges = {{2, 0}, {2, 0}, {0, 1}, {2, 1}};
  const Result<Dag> dag = dag_of(model, {{"A"}}, 1);

  ASSERT_TRUE(dag.ok());
  EXPECT_EQ(dag->layer, (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(dag->successors[0], (std::vector<int>{1, 2}));
  EXPECT_EQ(dag->predecessors[2], (std::vector<int>{0, 1}));
  EXPECT_TRUE(dag->chain());  // 2 -> 1 is implied
}

TEST(Dag, TakesAClassWithoutTimesFromTheFirstOne) {
  const Result<Dag> dag = dag_of(three_layers(), {{"A", 9}, {"B", 2.5}}, 1);
  ASSERT_TRUE(dag.ok());
  EXPECT_EQ(dag->classes[0].forward[0], 100);  // measured: no factor
  EXPECT_EQ(dag->classes[1].forward[0], 250);
  EXPECT_EQ(dag->classes[1].backward[0], 500);
}

TEST(Dag, SplitsAMicroBatchAmongRanks) {
  const Result<Dag> dag = dag_of(three_layers(), {{"A", 1, 2}, {"A", 1, 4}, {"A", 1, 8}}, 6);
  ASSERT_TRUE(dag.ok());
  EXPECT_EQ(dag->classes[0].forward[0], 180);  // 3 samples
  EXPECT_EQ(dag->classes[1].forward[0], 110);  // 1.5 samples
  EXPECT_EQ(dag->classes[2].forward[0], 100);  // below one sample nothing is gained
}

TEST(Dag, RefusesCyclesAndLooseEnds) {
  Model model = three_layers();
  model.edges = {{0, 1}, {1, 0}};
  EXPECT_EQ(dag_of(model, {{"A"}}, 1).error().message, "edges: form a cycle");
  model.edges = {{0, 3}};
  EXPECT_EQ(dag_of(model, {{"A"}}, 1).error().message, "edges: an end is no layer");
}

TEST(Dag, RefusesSumsThatWouldOverflow) {
  Model model = three_layers();
  model.layers[1].output_bytes_per_sample = std::int64_t{1} << 50;
  EXPECT_TRUE(dag_of(model, {{"A"}}, 100).ok());
  const Result<Dag> dag = dag_of(model, {{"A"}}, 100'000);
  ASSERT_FALSE(dag.ok());
  EXPECT_EQ(dag.error().message, "the model's times or sizes sum to over 2^62");
}

}  // namespace dag_test
}  // namespace weir::planner
