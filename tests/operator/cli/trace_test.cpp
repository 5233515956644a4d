// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/trace.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_check.h"
#include "tests/worker/timeline/records.h"
#include "worker/timeline/codec.h"

namespace weir::cli {
namespace trace_test {

using testing::IsEmpty;
using testing::SizeIs;

struct Answer {
  int code = 0;
  std::string out, err;
};

class TraceCommand : public testing::Test {
 protected:
  Answer run(const std::vector<std::string>& from) const {
    Options options{.command = Command::kTrace, .from = from, .output = trace_};
    std::ostringstream out, err;
    const int code = convert_trace(options, out, err);
    return {code, out.str(), err.str()};
  }
  std::string file(const std::string& name, const std::string& text) const {
    return folder_.file(name, text);
  }
  std::string written() const {
    std::ifstream stream(trace_);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  weir::test::TempDir folder_;
  const std::string trace_ = (folder_.path() / "trace.json").string();
};

TEST_F(TraceCommand, JoinsTheFilesOfTheRanks) {
  const auto records = timeline::test::two_stages();
  const Answer done = run({file("0.weir", encode(records[0])), file("1.weir", encode(records[1]))});

  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "demo/gpt: step 8 of 2 of 2 ranks\n" + trace_ +
                          ": open it in https://ui.perfetto.dev\n");
  const auto trace = weir::test::check_trace(written());
  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_THAT(trace.arrows, SizeIs(2));
}

TEST_F(TraceCommand, NamesTheFileAndTheByteThatAreWrong) {
  const std::string good = encode(timeline::test::two_stages()[0]);
  const std::string cut = file("cut.weir", good + good.substr(0, 20));

  const Answer damaged = run({cut});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_EQ(damaged.err, "kubectl weir: " + cut + ": byte " + std::to_string(good.size() + 8) +
                             ": a length of " + std::to_string(good.size() - 16) +
                             " is impossible: 4 bytes are left\n");
  const std::string foreign = file("trace.txt", "hello");
  EXPECT_EQ(run({foreign}).err, "kubectl weir: " + foreign + ": byte 0: no record begins here\n");
  EXPECT_EQ(run({"/nowhere/x"}).err,
            "kubectl weir: /nowhere/x: cannot be read: No such file or directory\n");
  const std::string one = file("one.weir", good);
  EXPECT_EQ(run({one, one}).err, "kubectl weir: two records of replica 0, stage 0\n");
  EXPECT_EQ(written(), "");
}

}  // namespace trace_test
}  // namespace weir::cli
