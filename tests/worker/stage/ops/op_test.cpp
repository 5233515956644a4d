// SPDX-License-Identifier: Apache-2.0
// Ops as data: run later an op does what it does at once, and it differs from an op with any other
// field.
#include "worker/stage/ops/op.h"

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/op_cases.h"

namespace weir::stage::ops {
namespace op_test {

// A case on host memory of its own.
struct OwnMemory {
  explicit OwnMemory(const test::OpCase& of) : scratch(of.scratch) {
    for (const auto& array : of.arrays) arrays.push_back(array.values);
    for (auto& array : arrays) memory.arrays.push_back(array.data());
    memory.tokens = of.tokens.data();
    memory.scratch = scratch.data();
    memory.result = &result;
  }
  std::vector<std::vector<float>> arrays;
  std::vector<float> scratch;
  double result = 0;
  test::OpMemory memory;
};

struct Recorder final : Kernels {
  void run(const Op& op) override { ops.push_back(op); }
  std::vector<Op> ops;
};

std::vector<Op> recorded(const test::OpCase& of, const test::OpMemory& memory) {
  Recorder recorder;
  of.calls(recorder, memory);
  return recorder.ops;
}

class Recorded : public testing::TestWithParam<test::OpCase> {};

TEST_P(Recorded, OpsDoLaterWhatTheyDoAtOnce) {
  const auto kernels = make_host_kernels(Precision::kFp32);
  OwnMemory at_once(GetParam()), later(GetParam());
  const OwnMemory untouched(GetParam());
  GetParam().calls(*kernels, at_once.memory);

  const std::vector<Op> ops = recorded(GetParam(), later.memory);

  EXPECT_EQ(later.arrays, untouched.arrays) << "nothing has run";
  for (const Op& op : ops) kernels->run(op);
  EXPECT_EQ(later.arrays, at_once.arrays);
  EXPECT_EQ(later.result, at_once.result);
}

TEST_P(Recorded, OpsAreTheSameForTheSameMemoryOnly) {
  const OwnMemory run(GetParam());
  const std::vector<Op> ops = recorded(GetParam(), run.memory);
  const std::vector<Op> again = recorded(GetParam(), run.memory);
  ASSERT_EQ(ops.size(), again.size());
  for (std::size_t i = 0; i < ops.size(); ++i) EXPECT_TRUE(same(ops[i], again[i]));

  // Each array in turn lies elsewhere: some op tells.
  for (std::size_t array = 0; array < run.arrays.size(); ++array) {
    test::OpMemory moved = run.memory;
    moved.arrays[array] = static_cast<float*>(moved.arrays[array]) + 1;
    const std::vector<Op> others = recorded(GetParam(), moved);
    bool differ = false;
    for (std::size_t i = 0; i < ops.size(); ++i) differ |= !same(ops[i], others[i]);
    EXPECT_TRUE(differ) << "array " << array;
  }
}

std::string case_name(const testing::TestParamInfo<test::OpCase>& tested) {
  return tested.param.name;
}
INSTANTIATE_TEST_SUITE_P(Ops, Recorded, testing::ValuesIn(test::op_cases()), case_name);

TEST(RecordedOps, TellShapesSizesConstantsAndKindsApart) {
  const std::vector<Op> ops = {GeluForward{.count = 4},
                               GeluForward{.count = 5},
                               ReluForward{.count = 4},
                               LinearBackwardInput{.shape = {4, 2, 3}},
                               LinearBackwardInput{.shape = {4, 2, 5}},
                               RmsNormApply{.shape = {4, 1, 2, 2, 1e-5F}},
                               RmsNormApply{.shape = {4, 1, 2, 2, 1e-6F}},
                               Rotary{.shape = {.direction = 1}},
                               Rotary{.shape = {.direction = -1}},
                               SoftmaxLoss{.rows = 1, .vocabulary = 2, .scale = 0.5F},
                               SoftmaxLoss{.rows = 1, .vocabulary = 2, .scale = 0.25F},
                               AdamW{.step = {.rate = 1}, .count = 1},
                               AdamW{.step = {.rate = 2}, .count = 1},
                               Zero{.count = 1},
                               Copy{.bytes = 1},
                               AddExactly{.count = 1},
                               RoundSums{.count = 1},
                               JoinSums{.count = 1},
                               SumSquares{.count = 1},
                               EncodeBlocks{.shape = {8, 1, 32}},
                               EncodeBlocks{.shape = {6, 1, 32}},
                               DecodeBlocks{.shape = {8, 1, 32}},
                               SampleCodecError{.shape = {8, 1, 32}}};
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (std::size_t j = 0; j < ops.size(); ++j) {
      EXPECT_EQ(same(ops[i], ops[j]), i == j) << i << " and " << j;
    }
  }
  EXPECT_EQ(name_of(ops[0]), "GeluForward");
  EXPECT_EQ(name_of(ops[3]), "LinearBackwardInput 2x3");
}

// Stands for a member of any type.
struct Any {
  template <class T>
  operator T() const;
};
template <class T, class... Members>
constexpr std::size_t members_of() {
  if constexpr (requires { T{Members()..., Any()}; }) {
    return members_of<T, Members..., Any>();
  } else {
    return sizeof...(Members);
  }
}
template <class... Ops>
constexpr bool all_fields_are_compared(const std::variant<Ops...>*) {
  return (... && (members_of<Ops>() == std::tuple_size_v<decltype(Ops().fields())>));
}
static_assert(all_fields_are_compared(static_cast<Op*>(nullptr)));

}  // namespace op_test
}  // namespace weir::stage::ops
