// SPDX-License-Identifier: Apache-2.0
// Each operation as an object: made later it does what it does at once, and differs from a call
// with any other argument.
#include "worker/stage/ops/calls.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/op_cases.h"

namespace weir::stage::ops {
namespace calls_test {

using Calls = std::vector<std::unique_ptr<Call>>;

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

Calls recorded(const test::OpCase& of, const test::OpMemory& memory) {
  Calls calls;
  CallRecorder recorder([&](std::unique_ptr<Call> call) { calls.push_back(std::move(call)); });
  of.calls(recorder, memory);
  return calls;
}

class Recorded : public testing::TestWithParam<test::OpCase> {};

TEST_P(Recorded, CallsDoWhenTheyAreMadeWhatTheyDoAtOnce) {
  const auto kernels = make_host_kernels(Precision::kFp32);
  OwnMemory at_once(GetParam()), later(GetParam());
  const OwnMemory untouched(GetParam());
  GetParam().calls(*kernels, at_once.memory);

  const Calls calls = recorded(GetParam(), later.memory);

  EXPECT_EQ(later.arrays, untouched.arrays) << "nothing has run";
  for (const auto& call : calls) call->make(*kernels);
  EXPECT_EQ(later.arrays, at_once.arrays);
  EXPECT_EQ(later.result, at_once.result);
}

TEST_P(Recorded, CallsAreTheSameForTheSameMemoryOnly) {
  const OwnMemory run(GetParam());
  const Calls calls = recorded(GetParam(), run.memory), again = recorded(GetParam(), run.memory);
  ASSERT_EQ(calls.size(), again.size());
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_TRUE(calls[i]->same(*again[i]));

  // Each array in turn lies elsewhere: some call tells.
  for (std::size_t array = 0; array < run.arrays.size(); ++array) {
    test::OpMemory moved = run.memory;
    moved.arrays[array] = static_cast<float*>(moved.arrays[array]) + 1;
    const Calls others = recorded(GetParam(), moved);
    bool differ = false;
    for (std::size_t i = 0; i < calls.size(); ++i) differ |= !calls[i]->same(*others[i]);
    EXPECT_TRUE(differ) << "array " << array;
  }
}

std::string case_name(const testing::TestParamInfo<test::OpCase>& tested) {
  return tested.param.name;
}
INSTANTIATE_TEST_SUITE_P(Ops, Recorded, testing::ValuesIn(test::op_cases()), case_name);

TEST(RecordedCalls, TellShapesSizesConstantsAndOperationsApart) {
  Calls calls;
  CallRecorder recorder([&](std::unique_ptr<Call> call) { calls.push_back(std::move(call)); });
  recorder.gelu_forward(4, nullptr, nullptr);
  recorder.gelu_forward(5, nullptr, nullptr);
  recorder.relu_forward(4, nullptr, nullptr);
  recorder.linear_backward_input({4, 2, 3}, nullptr, nullptr, nullptr);
  recorder.linear_backward_input({4, 2, 5}, nullptr, nullptr, nullptr);
  recorder.softmax_loss(1, 2, nullptr, 0.5F, nullptr, nullptr);
  recorder.softmax_loss(1, 2, nullptr, 0.25F, nullptr, nullptr);
  recorder.adamw({.rate = 1}, 1, nullptr, nullptr, nullptr, nullptr);
  recorder.adamw({.rate = 2}, 1, nullptr, nullptr, nullptr, nullptr);
  recorder.zero(nullptr, 1);
  recorder.copy(nullptr, nullptr, 1);
  recorder.add_exactly(1, nullptr, nullptr);
  recorder.round_sums(1, nullptr, nullptr);
  recorder.sum_squares(1, nullptr, nullptr);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (std::size_t j = 0; j < calls.size(); ++j) {
      EXPECT_EQ(calls[i]->same(*calls[j]), i == j) << i << " and " << j;
    }
  }
  EXPECT_EQ(calls[0]->name(), "gelu_forward");
  EXPECT_EQ(calls[3]->name(), "linear_backward_input 2x3");
}

}  // namespace calls_test
}  // namespace weir::stage::ops
