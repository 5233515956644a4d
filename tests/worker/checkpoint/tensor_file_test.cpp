// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/tensor_file.h"

#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weir::checkpoint {
namespace tensor_file_test {

const std::array<float, 6> kSix = {1, 2, 3, 4, 5, 6};
const std::array<float, 1> kOne = {-0.5F};

device::Buffer allocate(std::size_t bytes) {
  static const auto kDevice = device::make_host_device();
  return kDevice->allocate(bytes);
}

std::string two_tensors() {
  const std::vector<Tensor> tensors = {{"value/w", {2, 3}, kSix}, {"value/b", {1}, kOne}};
  const auto copy = [](void* to, const void* from, std::size_t bytes) -> Status {
    std::memcpy(to, from, bytes);
    return Unit{};
  };
  return std::string(encode_tensors(tensors, copy, allocate)->view());
}

// A file with this header and these data bytes.
std::string with_header(const std::string& header, std::size_t data_bytes) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\1');
}

TEST(TensorFile, TellsWhetherAllValuesAreFinite) {
  const auto copy = [](void* to, const void* from, std::size_t bytes) -> Status {
    std::memcpy(to, from, bytes);
    return Unit{};
  };
  const auto image_of = [&](std::span<const float> values) {
    return *encode_tensors(
        std::vector<Tensor>{{"v", {static_cast<std::int64_t>(values.size())}, values}}, copy,
        allocate);
  };
  EXPECT_TRUE(all_finite(image_of(kSix)));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::array<float, 6> values = kSix;
    values.back() = -bad;
    EXPECT_FALSE(all_finite(image_of(values)));
  }
}

TEST(TensorFile, IsNotMadeWithoutMemory) {
  const std::vector<Tensor> tensors = {{"value/w", {2, 3}, kSix}};
  const auto copy = [](void*, const void*, std::size_t) -> Status { return Unit{}; };

  const auto made = encode_tensors(tensors, copy, [](std::size_t) { return device::Buffer(); });

  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kInternal);
}

TEST(TensorFile, GivesBackWhatWasPutIn) {
  const std::string file = two_tensors();
  const auto tensors = decode_tensors(file);

  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2U);
  EXPECT_EQ((*tensors)[0].name, "value/w");
  EXPECT_EQ((*tensors)[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp((*tensors)[0].bytes.data(), kSix.data(), sizeof(kSix)), 0);
  EXPECT_EQ((*tensors)[1].name, "value/b");
}

TEST(TensorFile, HasTheLayoutOfSafetensors) {
  const std::string file = two_tensors();
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);

  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(file.size(), 8 + length + sizeof(kSix) + sizeof(kOne));
  EXPECT_EQ(file.substr(8, length).substr(0, 78),
            R"({"value/b":{"data_offsets":[24,28],"dtype":"F32","shape":[1]},"value/w":{"data)");
}

TEST(TensorFile, RefusesWhatIsTornOrInconsistent) {
  const std::string good = two_tensors();
  const std::vector<std::string> bad = {
      "",
      good.substr(0, 7),
      good.substr(0, 30),
      good.substr(0, good.size() - 1),
      good + "x",
      std::string(8, '\xff') + "{}",
      with_header("[]", 0),
      with_header("{\"a\": 1}", 0),
      with_header(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}})", 8),
      with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
      with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
      with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
      with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,80]}})", 8),
      with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),  // a hole
      with_header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],)"
                  R"("data_offsets":[0,8]}})",
                  8),
      with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                  8)};
  for (const std::string& file : bad) {
    const auto tensors = decode_tensors(file);
    ASSERT_FALSE(tensors) << file;
    EXPECT_EQ(tensors.error().code, Code::kInvalid);
  }
}

TEST(TensorFile, TakesScalarsAndMetadataOfOtherWriters) {
  const auto tensors = decode_tensors(with_header(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
      4));

  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_TRUE((*tensors)[0].shape.empty());
}

}  // namespace tensor_file_test
}  // namespace weir::checkpoint
