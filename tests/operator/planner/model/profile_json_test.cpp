// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/profile_json.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace weir::planner {
namespace profile_json_test {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;
using testing::Pair;

json profile() {
  return json::parse(R"({"apiVersion": "weir.dev/profile/v1", "model": "gpt", "digest": "sha256:1",
    "optimizer": {"stateFactor": 8}, "scaling": "proportional", "later": true,
    "nodes": [
      {"id": "embed", "parameterBytes": 100, "outputBytesPerSample": 10,
       "times": {"cpu": [{"samples": 1, "forward": 0.001, "backward": 0.002, "update": 0.0005}]}},
      {"id": "block0", "description": "block", "parameterBytes": 200, "outputBytesPerSample": 20,
       "stashBytesPerSample": 30, "stashBytes": 6, "transientBytesPerSample": 4, "transientBytes": 5,
       "times": {"cpu": [{"samples": 1, "forward": 0.01, "backward": 0.02},
                         {"samples": 4, "forward": 0.03, "backward": 0.04}]}}],
    "edges": [["embed", "block0"]]})");
}

std::string refusal(const json& document) {
  const Result<Model> model = decode_profile(document.dump());
  EXPECT_FALSE(model.ok());
  if (model.ok()) return "accepted";
  EXPECT_EQ(model.error().code, Code::kInvalid);
  return model.error().message;
}
std::string refusal_with(const char* pointer, const json& value) {
  json document = profile();
  document[json::json_pointer(pointer)] = value;
  return refusal(document);
}
std::string refusal_without(const char* parent, const char* field) {
  json document = profile();
  document.at(json::json_pointer(parent)).erase(field);
  return refusal(document);
}

TEST(ProfileJson, EveryFieldArrives) {
  const Result<Model> model = decode_profile(profile().dump());

  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->name, "gpt");
  EXPECT_EQ(model->digest, "sha256:1");
  EXPECT_EQ(model->state_factor, 8);
  EXPECT_EQ(model->scaling, Scaling::kProportional);
  ASSERT_EQ(model->layers.size(), 2U);
  EXPECT_EQ(model->layers[0].stash_bytes_per_sample, 10) << "default: the output";
  EXPECT_EQ(model->layers[0].times.at("cpu")[0].update, 500us);
  const Layer& block = model->layers[1];
  EXPECT_EQ(block.id, "block0");
  EXPECT_EQ(block.description, "block");
  EXPECT_EQ(block.parameter_bytes, 200);
  EXPECT_EQ(block.output_bytes_per_sample, 20);
  EXPECT_EQ(block.stash_bytes_per_sample, 30);
  EXPECT_EQ(block.stash_bytes, 6);
  EXPECT_EQ(block.transient_bytes_per_sample, 4);
  EXPECT_EQ(block.transient_bytes, 5);
  ASSERT_EQ(block.times.at("cpu").size(), 2U);
  EXPECT_EQ(block.times.at("cpu")[1].samples, 4);
  EXPECT_EQ(block.times.at("cpu")[1].forward, 30ms);
  EXPECT_THAT(model->edges, ElementsAre(Pair(0, 1)));
}

TEST(ProfileJson, WhatALayerHoldsBesidesIsFrozen) {
  json document = profile();
  document["nodes"][1]["staticBytes"] = 8 * 200 + 5000;
  const Result<Model> model = decode_profile(document.dump());

  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->layers[0].frozen_bytes, 0);
  EXPECT_EQ(model->layers[1].frozen_bytes, 5000);
}

TEST(ProfileJson, TiedTablesAreCounted) {
  json document = profile();
  document["ties"] = {{{"first", "embed"}, {"last", "block0"}, {"bytes", 100}}};
  EXPECT_EQ(decode_profile(document.dump())->tied_bytes, 100);
  EXPECT_EQ(decode_profile(profile().dump())->tied_bytes, 0);
}

TEST(ProfileJson, DefaultsAreThoseOfTheFormat) {
  json document = profile();
  for (const char* field : {"model", "digest", "optimizer", "scaling", "edges"})
    document.erase(field);
  const Result<Model> model = decode_profile(document.dump());

  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->state_factor, schedule::kStateFactor) << "what workers hold";
  EXPECT_EQ(model->scaling, Scaling::kInterpolate);
  EXPECT_TRUE(model->edges.empty());
  document["optimizer"] = json::object();
  EXPECT_TRUE(decode_profile(document.dump()).ok());
}

TEST(ProfileJson, RefusesWhatIsNoProfile) {
  EXPECT_EQ(decode_profile("{\"apiVersion\": ").error().message, "profile: not valid JSON");
  EXPECT_EQ(decode_profile("[1]").error().message, "profile: not a JSON object");
  EXPECT_EQ(decode_profile(std::string((16U << 20) + 1, ' ')).error().message,
            "profile: longer than 16 MiB");
  EXPECT_EQ(decode_profile("{\"model\": 1e999}").error().message, "profile: not valid JSON");
  EXPECT_EQ(refusal_without("", "apiVersion"), "apiVersion: missing");
  EXPECT_EQ(refusal_with("/apiVersion", "weir.dev/profile/v9"),
            "apiVersion: 'weir.dev/profile/v9' is not known, expected weir.dev/profile/v1");
  EXPECT_EQ(refusal_with("/model", 7), "model: 7 is not a text");
  EXPECT_EQ(refusal_with("/scaling", "cubic"),
            "scaling: \"cubic\" is none of interpolate, proportional");
  EXPECT_EQ(refusal_with("/optimizer", 4), "optimizer: 4 is not an object");
  EXPECT_EQ(refusal_with("/optimizer/stateFactor", "4"),
            "optimizer.stateFactor: \"4\" is not a number");
  EXPECT_EQ(refusal_with("/optimizer/stateFactor", 0.5), "optimizer.stateFactor: not in 1 .. 64");
}

TEST(ProfileJson, NamesTheFieldOfALayer) {
  EXPECT_EQ(refusal_without("", "nodes"), "nodes: missing");
  EXPECT_EQ(refusal_with("/nodes", json::array()), "nodes: not a list of 1 .. 65536 layers");
  EXPECT_EQ(refusal_with("/nodes/1", 3), "nodes[1]: 3 is not an object");
  EXPECT_EQ(refusal_without("/nodes/1", "id"), "nodes[1].id: missing");
  EXPECT_EQ(refusal_with("/nodes/1/id", ""), "nodes[1].id: empty");
  EXPECT_EQ(refusal_with("/nodes/1/id", "embed"), "nodes[1].id: 'embed' is there twice");
  EXPECT_EQ(refusal_without("/nodes/1", "parameterBytes"), "nodes[1].parameterBytes: missing");
  EXPECT_EQ(refusal_with("/nodes/1/parameterBytes", -1),
            "nodes[1].parameterBytes: not in 0 .. 2^50 bytes");
  EXPECT_THAT(refusal_with("/nodes/1/parameterBytes", 18446744073709551615ULL),
              testing::StartsWith("nodes[1].parameterBytes: 18446744073709551615 is no integer"));
  EXPECT_EQ(refusal_with("/nodes/1/outputBytesPerSample", 1.5),
            "nodes[1].outputBytesPerSample: 1.5 is no integer");
}

TEST(ProfileJson, NamesTheFieldOfATime) {
  EXPECT_EQ(refusal_without("/nodes/1", "times"), "nodes[1].times: missing");
  EXPECT_EQ(refusal_with("/nodes/1/times", json::object()),
            "nodes[1].times: not an object with a device class");
  EXPECT_EQ(refusal_with("/nodes/1/times/cpu", json::array()),
            "nodes[1].times.cpu: not a list of times");
  EXPECT_EQ(refusal_with("/nodes/1/times/cpu/0", 1), "nodes[1].times.cpu[0]: 1 is not an object");
  EXPECT_EQ(refusal_without("/nodes/1/times/cpu/0", "samples"),
            "nodes[1].times.cpu[0].samples: missing");
  EXPECT_EQ(refusal_with("/nodes/1/times/cpu/0/samples", "1"),
            "nodes[1].times.cpu[0].samples: \"1\" is no integer of -2147483648 to 2147483647");
  EXPECT_EQ(refusal_with("/nodes/1/times/cpu/1/samples", 1),
            "nodes[1].times.cpu[1].samples: 1 is below 2, or not rising");
  EXPECT_EQ(refusal_without("/nodes/1/times/cpu/0", "forward"),
            "nodes[1].times.cpu[0].forward: missing");
  EXPECT_EQ(refusal_with("/nodes/1/times/cpu/0/backward", "fast"),
            "nodes[1].times.cpu[0].backward: \"fast\" is not a number");
  EXPECT_EQ(refusal_with("/nodes/1/times/cpu/0/backward", -0.1),
            "nodes[1].times.cpu[0].backward: not in 0 .. 86400 seconds");
}

TEST(ProfileJson, RefusesWrongEdges) {
  EXPECT_EQ(refusal_with("/edges", 1), "edges: 1 is not a list");
  EXPECT_EQ(refusal_with("/edges/0", json::array({"embed"})), "edges[0]: not a pair of texts");
  EXPECT_EQ(refusal_with("/edges/0/1", "head\n"), "edges[0]: no node with id head");
  EXPECT_EQ(refusal_with("/edges/1", json::array({"block0", "embed"})), "edges: form a cycle");
}

}  // namespace profile_json_test
}  // namespace weir::planner
