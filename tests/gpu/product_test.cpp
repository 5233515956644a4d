// SPDX-License-Identifier: Apache-2.0
// The kernel for products that cuBLASLt cannot compute, against sums in double: all types, each
// factor as it is and transposed, with and without what is added, extents that no tile divides.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/gpu.h"
#include "worker/base/random.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/cuda/plain_product.h"

namespace weir::test {
namespace product_test {

using namespace stage::ops;
using stage::Precision;

struct Types {
  Precision inputs, output;
};

class PlainProducts : public OnGpu, public testing::WithParamInterface<Types> {
 protected:
  // Random numbers that both precisions hold, on the device in one of them, and as they are.
  struct Matrix {
    device::Buffer memory;
    std::vector<double> values;
  };
  Matrix matrix(int count, Precision precision) {
    Matrix made;
    std::vector<Bf16> narrow;
    std::vector<float> wide;
    for (int i = 0; i < count; ++i) {
      narrow.push_back(rounded<Bf16>(static_cast<float>(2 * random_.uniform() - 1)));
      wide.push_back(widened(narrow.back()));
      made.values.push_back(double{wide.back()});
    }
    made.memory = precision == Precision::kBf16 ? to_device(narrow) : to_device(wide);
    return made;
  }
  std::vector<double> values_of(const device::Buffer& memory, int count, Precision precision) {
    const auto staged = device_->download(memory);
    EXPECT_TRUE(staged) << staged.error().message;
    std::vector<double> values;
    for (int i = 0; i < count; ++i) {
      values.push_back(precision == Precision::kBf16 ? double{widened(staged->as<Bf16>()[i])}
                                                     : double{staged->as<float>()[i]});
    }
    return values;
  }
  void check(const Product& p, bool adds) {
    const Matrix a = matrix(p.m * p.k, p.inputs), b = matrix(p.k * p.n, p.inputs);
    const Matrix c = matrix(p.m * p.n, p.output), bias = matrix(p.m, p.output);
    const device::Buffer d = adds ? c.memory : matrix(p.m * p.n, p.output).memory;
    multiply_plainly(dynamic_cast<device::CudaDevice&>(*device_).stream(), p,
                     {a.memory.data(), b.memory.data(), adds ? c.memory.data() : nullptr,
                      adds ? bias.memory.data() : nullptr, d.data()});
    ASSERT_TRUE(device_->synchronize());
    const std::vector<double> actual = values_of(d, p.m * p.n, p.output);
    for (int column = 0; column < p.n; ++column) {
      for (int row = 0; row < p.m; ++row) {
        const auto at = [](int place) { return static_cast<std::size_t>(place); };
        double sum = adds ? c.values[at(column * p.m + row)] + bias.values[at(row)] : 0;
        for (int i = 0; i < p.k; ++i) {
          sum += a.values[at(p.transpose_a ? row * p.k + i : i * p.m + row)] *
                 b.values[at(p.transpose_b ? i * p.n + column : column * p.k + i)];
        }
        const double unit = p.output == Precision::kBf16 ? 0x1p-8 : 1e-6;
        ASSERT_NEAR(actual[at(column * p.m + row)], sum, unit * (1 + std::abs(sum)))
            << p.m << " x " << p.n << " x " << p.k << ", row " << row << ", column " << column;
      }
    }
  }
  Random random_{5};
};

TEST_P(PlainProducts, AreSums) {
  for (const auto& [m, n, k] : {std::array{1, 1, 1}, {13, 7, 50}, {33, 48, 16}, {16, 5, 33}}) {
    for (const int transposed : {0, 1, 2, 3}) {
      for (const bool adds : {false, true}) {
        check({m, n, k, (transposed & 1) != 0, (transposed & 2) != 0, GetParam().inputs,
               GetParam().output},
              adds);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PlainProducts,
                         testing::Values(Types{Precision::kFp32, Precision::kFp32},
                                         Types{Precision::kBf16, Precision::kFp32},
                                         Types{Precision::kBf16, Precision::kBf16}),
                         [](const auto& tested) {
                           const auto name = [](Precision precision) {
                             return precision == Precision::kBf16 ? "Bf16" : "Fp32";
                           };
                           return std::string(name(tested.param.inputs)) + "To" +
                                  name(tested.param.output);
                         });

}  // namespace product_test
}  // namespace weir::test
