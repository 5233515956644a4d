// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/device/device.h"

namespace weir::device {
namespace open_device_test {

using testing::HasSubstr;

TEST(OpenDevice, OpensTheHost) {
  const auto opened = open_device("cpu");
  ASSERT_TRUE(opened);
  EXPECT_TRUE((*opened)->is_host());
}

TEST(OpenDevice, NamesTheClassOfAHostByItsThreads) {
  EXPECT_EQ((*open_device("cpu"))->name(), "cpu");
  const auto four = open_device("cpu", 4);
  EXPECT_EQ((*four)->name(), "cpu-4");
  EXPECT_EQ((*four)->threads(), 4);
}

TEST(OpenDevice, NamesWhatItKnowsWhenTheNameIsWrong) {
  for (const std::string name : {"gpu", "", "cuda0", "cuda:", "cuda:-1", "cuda:1x"}) {
    const auto opened = open_device(name);
    ASSERT_FALSE(opened) << name;
    EXPECT_EQ(opened.error().code, Code::kInvalid) << name;
    EXPECT_THAT(opened.error().message, HasSubstr("known are cpu, cuda and cuda:N")) << name;
  }
}

#ifdef WEIR_CUDA
TEST(OpenDevice, SaysInOneLineThatThereIsNoGpu) {
  const auto opened = open_device("cuda:77");  // no machine has so many
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kNotFound);
  EXPECT_THAT(opened.error().message,
              testing::AnyOf(HasSubstr("no CUDA device"), HasSubstr("the driver supports CUDA")));
}
#else
TEST(OpenDevice, SaysThatThisBuildHasNoCuda) {
  const auto opened = open_device("cuda");
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("built without CUDA"));
}
#endif

}  // namespace open_device_test
}  // namespace weir::device
