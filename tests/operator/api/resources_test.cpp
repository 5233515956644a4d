// SPDX-License-Identifier: Apache-2.0
#include "operator/api/resources.h"

#include <gtest/gtest.h>

namespace weir::api {
namespace {

TEST(Quantity, IsReadExactly) {
  const std::pair<const char*, const char*> cases[] = {
      {"1", "1"},        {"0.5", "500m"},   {"100m", "100m"},  {"2Gi", "2147483648"},
      {"1.5Ki", "1536"}, {"1e3", "1000"},   {"5M", "5000000"}, {"1E-3", "1m"},
      {"1u", "1m"},      {"1500m", "1500m"}};
  for (const auto& [text, want] : cases) {
    const auto value = read_quantity(text);
    ASSERT_TRUE(value.has_value()) << text;
    EXPECT_EQ(quantity_text(*value), want) << text;
  }
  for (const char* text : {"", "x", "1x", "1e", "1e99", ".", "12345678901234567"}) {
    EXPECT_FALSE(read_quantity(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace weir::api
