// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/start_checks.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::transport::nccl {
namespace start_checks_test {

using ::testing::HasSubstr;
using ::testing::Not;

Facts sound() {
  return {.nccl = 22809,
          .driver = 13000,
          .runtime = 13000,
          .capability = 80,
          .gpu_name = "NVIDIA A100",
          .gpu = "GPU-1"};
}

TEST(NcclStartChecks, AcceptWhatIsNewEnough) {
  EXPECT_TRUE(check_start(sound()));
  Facts newer = sound();
  newer.driver = 13020;
  newer.nccl = 23001;
  EXPECT_TRUE(check_start(newer));
}

TEST(NcclStartChecks, SayInOneLineWhatIsWrong) {
  struct Case {
    std::function<void(Facts&)> edit;
    const char* text;
  };
  const std::vector<Case> cases = {
      {[](Facts& f) { f.nccl = 22705; }, "NCCL 2.27.5 is loaded, this worker needs 2.28.0"},
      {[](Facts& f) { f.driver = 0; }, "no CUDA driver"},
      {[](Facts& f) { f.driver = 12080; }, "supports CUDA 12.8, this worker needs 13.0"},
      {[](Facts& f) {
         f.capability = 70;
         f.gpu_name = "Tesla V100";
       },
       "Tesla V100 has compute capability 7.0"},
  };
  for (const Case& one : cases) {
    Facts facts = sound();
    one.edit(facts);
    const Status status = check_start(facts);
    ASSERT_FALSE(status) << one.text;
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_THAT(status.error().message, HasSubstr(one.text));
    EXPECT_THAT(status.error().message, Not(HasSubstr("\n")));
  }
}

TEST(NcclPeerChecks, RefuseTheSameGpuAndAnotherVersion) {
  EXPECT_TRUE(check_peer(sound(), {.nccl = 22801, .gpu = "GPU-2"}));

  const Status same = check_peer(sound(), {.nccl = 22809, .gpu = "GPU-1"});
  const Status other = check_peer(sound(), {.nccl = 22900, .gpu = "GPU-2"});

  ASSERT_FALSE(same);
  EXPECT_THAT(same.error().message, HasSubstr("same GPU"));
  EXPECT_THAT(same.error().message, HasSubstr("GPU-1"));
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("2.29.0"));
}

}  // namespace start_checks_test
}  // namespace weir::transport::nccl
