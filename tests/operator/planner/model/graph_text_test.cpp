// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/graph_text.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

namespace weir::planner {
namespace graph_text_test {

std::string node(const std::string& id, const std::string& description = "Conv2d") {
  return id + " -- " + description +
         " -- forward_compute_time=1.0, backward_compute_time=2.5, activation_size=100.0, "
         "parameter_size=4.000\n";
}

std::string refusal(const std::string& text) {
  const Result<Model> model = decode_graph(text, "g.txt");
  return model.ok() ? "accepted" : model.error().message;
}

std::string file(const std::string& name) {
  std::ifstream stream(std::string(WEIR_SOURCE_DIR) + "/tests/data/planner/pipedream/" + name);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(GraphText, ReadsTimesInMillisecondsAndSizesInBytes) {
  const Result<Model> model =
      decode_graph(node("node1") + node("node2") + "\tnode1 -- node2\n", "g");

  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->layers.size(), 2U);
  const Layer& layer = model->layers[0];
  EXPECT_EQ(layer.id, "node1");
  EXPECT_EQ(layer.description, "Conv2d");
  EXPECT_EQ(layer.times.at("")[0].forward, std::chrono::nanoseconds(1'000'000));
  EXPECT_EQ(layer.times.at("")[0].backward, std::chrono::nanoseconds(2'500'000));
  EXPECT_EQ(layer.output_bytes_per_sample, 100);
  EXPECT_EQ(layer.stash_bytes_per_sample, 100);
  EXPECT_EQ(layer.parameter_bytes, 4);
  EXPECT_EQ(model->scaling, Scaling::kProportional);
  EXPECT_EQ(model->edges, (std::vector<std::pair<int, int>>{{0, 1}}));
}

TEST(GraphText, AcceptsWhatProfilersWrite) {
  const std::string text =
      "node9 -- Conv2d(3, 64, kernel_size=(11, 11), activation_size=7) -- forward_compute_time=2,"
      " backward_compute_time=0.000, activation_size=[1.5; 2; 3.5], parameter_size=0 --"
      " stage_id=3  \r\n"
      "  node10 -- node9\r\n\tnode10 -- node9\r\n\n" +
      node("node10");
  const Result<Model> model = decode_graph(text.substr(0, text.size() - 1), "g");

  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->layers[0].id, "node10");  // lines are in no order
  EXPECT_EQ(model->layers[1].output_bytes_per_sample, 7);
  EXPECT_EQ(model->edges.size(), 1U);  // the second edge is the first again
}

TEST(GraphText, DoesNotDependOnTheOrderOfLines) {
  std::vector<std::string> lines;
  std::istringstream stream(file("gnmt.txt"));
  for (std::string line; std::getline(stream, line);) lines.push_back(line + "\n");
  const auto joined = [&] { return std::accumulate(lines.begin(), lines.end(), std::string()); };
  const Result<Model> model = decode_graph(joined(), "g");
  std::shuffle(lines.begin(), lines.end(), std::mt19937(7));
  const Result<Model> shuffled = decode_graph(joined(), "g");

  ASSERT_TRUE(model.ok() && shuffled.ok());
  EXPECT_EQ(model->edges, shuffled->edges);
  for (std::size_t i = 0; i < model->layers.size(); ++i) {
    EXPECT_EQ(model->layers[i].id, shuffled->layers[i].id);
  }
}

TEST(GraphText, OrdersIdsByTheirNumbers) {
  const Result<Model> model = decode_graph(
      node("node10") + node("node9") + node("node09") + node("x") + node("node9b"), "g");

  ASSERT_TRUE(model.ok());
  std::vector<std::string> ids;
  for (const Layer& layer : model->layers) ids.push_back(layer.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"node09", "node9", "node9b", "node10", "x"}));
  EXPECT_TRUE(model->edges.empty() && model->edges_given);
}

TEST(GraphText, RemovesInputsAndUnusedItems) {
  const std::string text =
      node("node1", "Input0") + node("node2") + node("node3", "__getitem__(0)") +
      node("node4", "__getitem__(1)") + node("node5", "InputLayer") + node("hidden", "hidden") +
      "\tnode1 -- node2\n\tnode2 -- node3\n\tnode2 -- node4\n\tnode4 -- node5\n"
      "\thidden -- node5\n";
  const Result<Model> model = decode_graph(text, "g");

  ASSERT_TRUE(model.ok());
  std::vector<std::string> ids;
  for (const Layer& layer : model->layers) ids.push_back(layer.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"hidden", "node2", "node4", "node5"}));
  EXPECT_EQ(model->edges, (std::vector<std::pair<int, int>>{{0, 3}, {1, 2}, {2, 3}}));
}

struct Shape {
  const char* name;
  std::size_t nodes, edges;
  double seconds;
  std::int64_t parameters;
};

// tests/operator/planner/README.md "Graphs"
TEST(GraphText, ReadsThePublishedGraphs) {
  for (const Shape& shape :
       {Shape{"alexnet", 22, 21, 0.085321, 244403360}, Shape{"vgg16", 40, 39, 0.672535, 553430176},
        Shape{"squeezenet1_0", 67, 74, 0.285366, 4993696},
        Shape{"resnet18", 70, 77, 0.259742, 46758048},
        Shape{"resnet50", 176, 191, 0.443419, 102228128},
        Shape{"densenet121", 428, 485, 0.326155, 31915424},
        Shape{"gnmt", 37, 44, 0.089416, 775063808},
        Shape{"inception_v3", 325, 360, 0.689038, 108645056}}) {
    const Result<Model> model = decode_graph(file(std::string(shape.name) + ".txt"), shape.name);
    ASSERT_TRUE(model.ok()) << model.error().message;
    double seconds = 0;
    std::int64_t parameters = 0;
    for (const Layer& layer : model->layers) {
      const LayerTime& time = layer.times.at("")[0];
      seconds += std::chrono::duration<double>(time.forward + time.backward).count();
      parameters += layer.parameter_bytes;
    }
    EXPECT_EQ(model->layers.size(), shape.nodes) << shape.name;
    EXPECT_NEAR(seconds, shape.seconds, 5e-7) << shape.name;
    EXPECT_EQ(parameters, shape.parameters) << shape.name;
  }
}

TEST(GraphText, RefusesWithTheLine) {
  const std::string two = node("a") + node("b");
  const std::string meta =
      "forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=";
  EXPECT_EQ(refusal(""), "g.txt: no node");
  EXPECT_EQ(refusal(" \n\r\n"), "g.txt: no node");
  EXPECT_EQ(refusal(node("a", "Input0")), "g.txt: no node but inputs");
  EXPECT_EQ(refusal("a -- Conv2d\n"),
            "g.txt:1: a node has id, description and metadata between \" -- \", found 2 of 3");
  EXPECT_EQ(refusal("a --  -- " + meta + "1\n b -- a"), "g.txt:2: edge to unknown node \"b\"");
  EXPECT_EQ(refusal(two + node("a")), "g.txt:3: duplicate node id \"a\" (first at line 1)");
  EXPECT_EQ(refusal(two + "\n\ta -- node99\n"), "g.txt:4: edge to unknown node \"node99\"");
  EXPECT_EQ(refusal(two + "\ta -- a\n"), "g.txt:3: edge from \"a\" to itself");
  EXPECT_EQ(refusal(two + "\ta --\n"), "g.txt:3: an edge is two node ids, found \"a --\"");
  EXPECT_EQ(refusal(two + "\ta -- b -- a\n"),
            "g.txt:3: an edge is two node ids, found \"a -- b -- a\"");
  EXPECT_EQ(refusal("a -- x -- forward_compute_time=1\n"),
            "g.txt:1: missing backward_compute_time");
  EXPECT_EQ(refusal("a -- L -- forward_compute_time=1,5, backward_compute_time=2, "
                    "activation_size=8, parameter_size=1\n"),
            "g.txt:1: expected key=value, key=value, found \"5\"");
  for (const char* number : {"-1", "nan", "inf", "1x", "", "[1; ]", "[", "1e999", "0x10"}) {
    EXPECT_EQ(
        refusal("a -- x -- " + meta + number),
        std::string("g.txt:1: parameter_size: expected a number >= 0, got \"") + number + "\"");
  }
  EXPECT_EQ(refusal("a -- x -- " + meta + "1e16"),
            "g.txt:1: parameter_size: \"1e16\" is too large");
}

TEST(GraphText, NamesACycle) {
  const std::string nodes = node("node1") + node("node7") + node("node9") + node("node10");
  EXPECT_EQ(
      refusal(nodes + "\tnode1 -- node7\n\tnode9 -- node7\n\tnode7 -- node9\n\tnode9 -- node10\n"),
      "g.txt:7: cycle: node7 -> node9 -> node7");
  std::string many;
  for (int i = 0; i < 20; ++i) {
    many += node("n" + std::to_string(i)) + "\tn" + std::to_string(i) + " -- n" +
            std::to_string((i + 1) % 20) + "\n";
  }
  EXPECT_EQ(refusal(many),
            "g.txt:40: cycle: n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> n6 -> n7 -> ... -> n0");
}

TEST(GraphText, ShowsForeignTextShortAndPrintable) {
  EXPECT_EQ(refusal(node("a") + "\ta -- b\x01" + std::string(100, 'x') + "\n"),
            "g.txt:2: edge to unknown node \"b?" + std::string(58, 'x') + "...\"");
}

TEST(GraphText, HasLimits) {
  std::string nodes;
  for (int i = 0; i <= 65536; ++i) {
    nodes += "n" + std::to_string(i) +
             " -- x -- forward_compute_time=1, backward_compute_time=1, activation_size=1, "
             "parameter_size=1\n";
  }
  EXPECT_EQ(refusal(nodes), "g.txt:65537: more than 65536 nodes");
  std::string edges = node("a") + node("b");
  for (int i = 0; i <= 1 << 20; ++i) edges += " a -- b\n";
  EXPECT_EQ(refusal(edges), "g.txt:1048579: more than 1048576 edges");
  EXPECT_EQ(refusal(std::string((std::size_t{64} << 20) + 1, '\n')), "g.txt: longer than 64 MiB");
}

TEST(GraphText, IsRecognisedByItsFirstCharacter) {
  EXPECT_TRUE(looks_like_graph("\nnode1 -- x"));
  EXPECT_FALSE(looks_like_graph("  {\"nodes\": []}"));
  EXPECT_FALSE(looks_like_graph(" \n"));
}

// Any bytes: a Model or one line with the place, never a crash.
TEST(GraphText, SurvivesDamagedFiles) {
  std::mt19937 random(11);
  const std::string original = file("gnmt.txt");
  const auto up_to = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    std::string text = original;
    for (std::size_t change = up_to(8); change > 0; --change) {
      const std::size_t at = up_to(text.size() - 1);
      switch (up_to(3)) {
        case 0:
          text[at] = static_cast<char>(up_to(255));
          break;
        case 1:
          text.erase(at, up_to(40));
          break;
        case 2:
          text.insert(at, text.substr(up_to(text.size() - 1), up_to(60)));
          break;
        default:
          text.resize(at + 1);
          break;
      }
    }
    const Result<Model> model = decode_graph(text, "g.txt");
    if (model.ok()) continue;
    EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
    EXPECT_TRUE(model.error().message.starts_with("g.txt:"));
  }
}

}  // namespace graph_text_test
}  // namespace weir::planner
