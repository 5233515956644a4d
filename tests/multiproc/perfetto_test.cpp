// SPDX-License-Identifier: Apache-2.0
// A trace of real workers in Perfetto's own trace processor, which is what ui.perfetto.dev runs
// (tests/perfetto/setup).
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/multiproc/workers.h"
#include "tests/support/trace_check.h"
#include "worker/timeline/chrome_trace.h"
#include "worker/timeline/codec.h"

namespace weir::test {
namespace perfetto_test {

using nlohmann::json;
using testing::Each;
using testing::IsEmpty;

constexpr int kCannotBeHad = 77;  // exit code of tests/perfetto/rows

struct Answer {
  int exit_code = -1;
  std::vector<json> rows;  // of each query
};

Answer ask(const std::string& trace, const std::vector<std::string>& queries) {
  std::string command = std::string(WEIR_SOURCE_DIR) + "/tests/perfetto/rows '" + trace + "'";
  for (const std::string& query : queries) command += " \"" + query + "\"";
  std::FILE* const pipe = popen(command.c_str(), "r");  // NOLINT: a test of this repository
  if (pipe == nullptr) return {};
  std::string out;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) out += static_cast<char>(c);
  Answer answer{.exit_code = WEXITSTATUS(pclose(pipe)), .rows = {}};
  for (std::size_t at = 0; at < out.size();) {
    const std::size_t end = out.find('\n', at);
    answer.rows.push_back(json::parse(out.substr(at, end - at), nullptr, false));
    at = end == std::string::npos ? out.size() : end + 1;
  }
  return answer;
}

TEST(Perfetto, FindsAllOpsOfAllRanksOfThreeSteps) {
  constexpr int kStages = 2;
  const std::vector<int> shares{3, 2};
  const TempDir folder;
  std::vector<std::vector<std::string>> extra;
  std::vector<std::string> files;
  for (int i = 0; i < 2 * kStages; ++i) {
    files.push_back((folder.path() / (std::to_string(i) + ".weir")).string());
    extra.push_back({"--trace-file=" + files.back(), "--trace-steps=4-6"});
  }
  Workers workers({.k = 1, .stages = kStages, .shares = shares},
                  {"--model=mlp", "--seq=8", "--vocab=32", "--steps=8"}, extra, 2 * kStages);
  ASSERT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
  std::string octets;
  for (const std::string& name : files) {
    std::ifstream file(name, std::ios::binary);
    octets.append(std::istreambuf_iterator<char>(file), {});
  }
  const auto records = timeline::decode(octets);
  ASSERT_TRUE(records) << records.error().message;
  const std::string text = timeline::chrome_trace(*records);
  std::ofstream(folder.path() / "trace.json") << text;

  const Answer answer =
      ask((folder.path() / "trace.json").string(),
          {"select name, value from stats where severity != 'info' and value > 0",
           "select p.pid, t.tid, s.name, extract_arg(s.arg_set_id, 'args.step') from slice s "
           "join thread_track k on s.track_id = k.id join thread t using (utid) "
           "join process p using (upid) where s.category in ('forward', 'backward')",
           "select count(*) from flow", "select count(*) from slice where category = 'send'",
           "select count(*) from slice"});
  if (answer.exit_code == kCannotBeHad) {
    GTEST_SKIP() << "Perfetto's trace processor cannot be had here; trace_check.h reads traces";
  }

  ASSERT_EQ(answer.exit_code, 0);
  ASSERT_EQ(answer.rows.size(), 5U);
  EXPECT_EQ(answer.rows[0], json::array()) << "errors while it was read";
  std::set<json> wanted;
  int arrows = 0;
  for (int replica = 0; replica < 2; ++replica) {
    const int micro_batches = shares[static_cast<std::size_t>(replica)];
    arrows += 3 * 2 * (kStages - 1) * micro_batches;
    for (int stage = 0; stage < kStages; ++stage) {
      for (int step = 4; step <= 6; ++step) {
        for (int m = 0; m < micro_batches; ++m) {
          for (const char* op : {"F", "B"}) {
            wanted.insert(
                json::array({1 + replica, 1000 + 3 * stage, op + std::to_string(m), step}));
          }
        }
      }
    }
  }
  EXPECT_EQ(answer.rows[1].size(), wanted.size());
  const std::set<json> found(answer.rows[1].begin(), answer.rows[1].end());
  std::vector<json> lacking;
  std::ranges::set_difference(wanted, found, std::back_inserter(lacking));
  EXPECT_THAT(lacking, IsEmpty());
  EXPECT_EQ(answer.rows[3], json::array({json::array({arrows})}));
  const CheckedTrace trace = check_trace(text);
  std::size_t slices = 0, pieces = 0;
  for (const auto& [track, all] : trace.tracks) slices += all.size();
  for (const auto& [id, arrow] : trace.arrows) pieces += arrow.times.size() - 1;
  EXPECT_GE(pieces, static_cast<std::size_t>(arrows));
  EXPECT_EQ(answer.rows[2], json::array({json::array({pieces})})) << "from op to link to op";
  EXPECT_EQ(answer.rows[4], json::array({json::array({slices})})) << "none is dropped";
}

}  // namespace perfetto_test
}  // namespace weir::test
