// SPDX-License-Identifier: Apache-2.0
#include "worker/base/exception_text.h"

#include <new>
#include <stdexcept>
#include <system_error>

#include <gmock/gmock.h>

namespace weir {
namespace exception_text_test {

using testing::HasSubstr;

TEST(ExceptionText, NamesTheResourceThatRanOut) {
  EXPECT_THAT(describe(std::bad_alloc()), HasSubstr("memory"));
  EXPECT_THAT(describe(std::bad_array_new_length()), HasSubstr("memory"));
  EXPECT_THAT(
      describe(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))),
      HasSubstr("threads"));
  EXPECT_EQ(describe(std::runtime_error("epoll: Too many open files")),
            "epoll: Too many open files");
}

}  // namespace exception_text_test
}  // namespace weir
