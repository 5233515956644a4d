// SPDX-License-Identifier: Apache-2.0
// Damaged copies of good files through every parser; seeds are fixed.
#include "tests/fuzz/parsers.h"

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fuzz/damage.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace weir::fuzz {
namespace parsers_test {

std::string file(const std::string& path) {
  std::ifstream stream(std::string(WEIR_SOURCE_DIR) + "/tests/" + path);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

struct Seed {
  Parser parser;
  const char* path;
};

constexpr Seed kSeeds[] = {
    {Parser::kGraph, "data/planner/pipedream/alexnet.txt"},
    {Parser::kGraph, "data/planner/pipedream/gnmt.txt"},
    {Parser::kProfile, "fuzz/corpus/profile.json"},
    {Parser::kCluster, "fuzz/corpus/cluster.json"},
    {Parser::kShortCluster, "fuzz/corpus/short.txt"},
    {Parser::kSailorTimes, "fuzz/corpus/sailor_times.json"},
    {Parser::kSailorSizes, "fuzz/corpus/sailor_sizes.json"},
    {Parser::kWatchLine, "fuzz/corpus/watch_event.json"},
    {Parser::kList, "fuzz/corpus/list.json"},
    {Parser::kPlan, "fuzz/corpus/plan.json"},
    {Parser::kMessage, "fuzz/corpus/hello.json"},
    {Parser::kMessage, "fuzz/corpus/status_message.json"},
    {Parser::kReport, "fuzz/corpus/report.json"},
    {Parser::kRegister, "fuzz/corpus/register.json"},
    {Parser::kManifest, "fuzz/corpus/manifest.json"},
    {Parser::kFolderLock, "fuzz/corpus/writer_lock.json"},
    {Parser::kMatrix, "fuzz/corpus/matrix.json"},
    {Parser::kUrl, "fuzz/corpus/url.txt"},
    {Parser::kHostPort, "fuzz/corpus/host_port.txt"},
    {Parser::kTime, "fuzz/corpus/time.txt"},
    {Parser::kControlHello, "fuzz/corpus/control_hello.bin"},
    {Parser::kDataHello, "fuzz/corpus/hello.bin"},
    {Parser::kDataFrame, "fuzz/corpus/frame.bin"},
    {Parser::kTensorFile, "fuzz/corpus/layer.safetensors"},
    {Parser::kQuantity, "fuzz/corpus/quantity.txt"},
    {Parser::kRate, "fuzz/corpus/rate.txt"},
    {Parser::kMegatronIndex, "fuzz/corpus/megatron.idx"},
    {Parser::kLlmCFile, "fuzz/corpus/llm_c.bin"},
    {Parser::kFlatFile, "fuzz/corpus/flat.bin"},
    {Parser::kDataShares, "fuzz/corpus/shares.txt"},
    {Parser::kModelFile, "data/hf/gpt2/model.safetensors"},
    {Parser::kModelConfig, "data/hf/llama/config.json"},
    {Parser::kModelConfig, "data/hf/gpt2/config.json"},
    {Parser::kModelConfig, "data/hf/qwen2/config.json"},
    {Parser::kRecord, "fuzz/corpus/record.bin"},
};

TEST(FuzzParsers, AcceptTheCorpus) {
  for (const Seed& seed : kSeeds) EXPECT_TRUE(feed(seed.parser, file(seed.path))) << seed.path;
}

TEST(FuzzParsers, SurviveDamagedCopies) {
  std::mt19937 random(20);
  for (const Seed& seed : kSeeds) {
    const std::string original = file(seed.path);
    int refused = 0;
    for (int round = 0; round < 400; ++round) {
      refused += feed(seed.parser, damaged(original, random)) ? 0 : 1;
    }
    EXPECT_GT(refused, 40) << seed.path;
  }
}

TEST(FuzzParsers, SurviveTheFilesOfOtherParsers) {
  for (const Seed& seed : kSeeds) {
    for (const Parser parser : kParsers) feed(parser, file(seed.path));
  }
}

TEST(FuzzParsers, SurviveNoise) {
  std::mt19937 random(21);
  for (int round = 0; round < 2000; ++round) {
    std::string text(static_cast<std::size_t>(random() % 80), ' ');
    for (char& c : text) c = static_cast<char>(random() % 256);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
}

TEST(FuzzParsers, SurviveDeepNesting) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    for (const Parser parser : kParsers) {
      const bool path = parser == Parser::kDataShares;  // any text is one
      EXPECT_EQ(feed(parser, text), path);
    }
  }
}

}  // namespace parsers_test
}  // namespace weir::fuzz
