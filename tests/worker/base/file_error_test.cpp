// SPDX-License-Identifier: Apache-2.0
#include "worker/base/file_error.h"

#include <cerrno>
#include <fstream>

#include <gtest/gtest.h>

namespace weir {
namespace file_error_test {

TEST(FileError, NamesTheFileAndTheReasonOfTheSystem) {
  const std::string missing = testing::TempDir() + "no-such-file";
  const std::ifstream absent(missing);
  const Error error = unreadable(missing);
  EXPECT_EQ(error.message, missing + ": cannot be read: No such file or directory");
  EXPECT_EQ(error.code, Code::kInvalid);
}

TEST(FileError, AFolderIsOpenedByAStreamButNotRead) {
  errno = 0;
  std::ifstream folder(testing::TempDir());
  char byte = 0;
  EXPECT_FALSE(folder.read(&byte, 1));
  EXPECT_EQ(unreadable("f").message, "f: cannot be read: Is a directory");
}

TEST(FileError, SaysSoWithoutAReasonWhereThereIsNone) {
  errno = 0;
  EXPECT_EQ(unwritable("plan.json").message, "plan.json: cannot be written");
  errno = 0;
  EXPECT_EQ(unreadable("").message, "'': cannot be read");
}

}  // namespace file_error_test
}  // namespace weir
