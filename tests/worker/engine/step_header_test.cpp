// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/step_header.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/digest.h"

namespace weir::engine {
namespace step_header_test {

StepHeader example() {
  return {.job = 0x11223344,
          .step = 0x0102030405060708,
          .epoch = 7,
          .incarnation = 2,
          .micro_batches = 32,
          .micro_batch_size = 8,
          .k = 4,
          .forward = schedule::Codec::kInt8,
          .backward = schedule::Codec::kInt6};
}

TEST(StepHeader, IsWhatWasEncoded) {
  const auto decoded = decode_step_header(encode(example()));

  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, example());
}

TEST(StepHeader, LiesLittleEndianInTheDocumentedOrder) {
  const StepHeaderBytes bytes = encode(example());

  const std::string text = to_hex({reinterpret_cast<const char*>(bytes.data()), 28});
  EXPECT_EQ(text,
            "57455253"
            "44332211"
            "0807060504030201"
            "07000000"
            "0200"
            "2000"
            "0800"
            "04"
            "32");
}

TEST(StepHeader, OfAnotherSizeIsRefused) {
  const StepHeaderBytes bytes = encode(example());

  EXPECT_FALSE(decode_step_header(std::span(bytes).first(31)));
  EXPECT_FALSE(decode_step_header({}));
}

TEST(StepHeader, WithAnyByteChangedIsRefused) {
  for (std::size_t i = 0; i < kStepHeaderBytes; ++i) {
    StepHeaderBytes bytes = encode(example());
    bytes[i] ^= std::byte{1};

    const auto decoded = decode_step_header(bytes);

    ASSERT_FALSE(decoded) << "byte " << i;
    EXPECT_EQ(decoded.error().code, Code::kInvalid);
  }
}

TEST(StepHeader, NamesTheFieldThatDiffers) {
  struct Case {
    const char* field;
    std::function<void(StepHeader&)> change;
  };
  const std::vector<Case> cases = {
      {"job", [](StepHeader& h) { h.job = 1; }},
      {"step", [](StepHeader& h) { ++h.step; }},
      {"epoch", [](StepHeader& h) { ++h.epoch; }},
      {"incarnation", [](StepHeader& h) { ++h.incarnation; }},
      {"micro-batches", [](StepHeader& h) { ++h.micro_batches; }},
      {"micro-batch size", [](StepHeader& h) { ++h.micro_batch_size; }},
      {"k", [](StepHeader& h) { ++h.k; }},
      {"forward codec", [](StepHeader& h) { h.forward = schedule::Codec::kRaw; }},
      {"backward codec", [](StepHeader& h) { h.backward = schedule::Codec::kBf16; }},
  };
  for (const Case& one : cases) {
    StepHeader header = example();
    one.change(header);

    const Status status = check_step_header(header, example());

    ASSERT_FALSE(status) << one.field;
    EXPECT_EQ(status.error().code, Code::kConflict);
    EXPECT_NE(status.error().message.find(std::string(one.field) + " is"), std::string::npos)
        << status.error().message;
  }
  EXPECT_TRUE(check_step_header(example(), example()));
}

TEST(StepHeader, WithACodecOfALaterReleaseIsRefused) {
  StepHeader header = example();
  header.backward = static_cast<schedule::Codec>(9);

  const auto decoded = decode_step_header(encode(header));

  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().message,
            "step header has a codec that is not known to this worker, number 9");
}

TEST(StepHeader, OfRawBoundariesIsThatOfAReleaseWithoutCodecs) {
  StepHeader header = example();
  header.forward = header.backward = schedule::Codec::kRaw;

  const StepHeaderBytes bytes = encode(header);

  EXPECT_EQ(to_hex({reinterpret_cast<const char*>(bytes.data()) + 26, 2}), "0400") << "a 16 bit k";
}

TEST(StepHeader, HasTheCodecsOfItsBoundary) {
  schedule::Plan plan;
  plan.micro_batches = {4};
  plan.codecs = {.forward = {schedule::Codec::kRaw, schedule::Codec::kInt8},
                 .backward = {schedule::Codec::kInt6, schedule::Codec::kBf16}};

  const StepHeader header = make_step_header("uid", 5, plan, 0, 1, 1);

  EXPECT_EQ(header.forward, schedule::Codec::kInt8);
  EXPECT_EQ(header.backward, schedule::Codec::kBf16);
}

TEST(StepHeader, LeavesToThePlanWhatDoesNotFit) {
  schedule::Plan plan;
  plan.revision = 3;
  plan.micro_batches = {70000};
  plan.schedule = {.k = 300, .micro_batch_size = 4, .caps = {1}};

  const StepHeader header = make_step_header("uid", 5, plan, 0, 0, 1);

  EXPECT_EQ(header.micro_batches, 0);
  EXPECT_EQ(header.k, 0);
  EXPECT_EQ(header.micro_batch_size, 4);
  EXPECT_TRUE(check_step_header(header, header));
}

}  // namespace step_header_test
}  // namespace weir::engine
