// SPDX-License-Identifier: Apache-2.0
#include "worker/base/termination.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir {
namespace termination_test {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Termination, ReplacesWhatTheFileHeld) {
  const test::TempDir dir;
  const std::string path = dir.file("log", "the words of an earlier start, which were longer");
  set_termination_log(path);

  write_termination_message("storage\nis gone\n");

  EXPECT_EQ(text_of(path), "storage is gone");
  set_termination_log("/no/such/folder/log");
  write_termination_message("nobody hears");
  set_termination_log("");
  write_termination_message("nobody hears");
  EXPECT_EQ(text_of(path), "storage is gone");
}

TEST(Termination, TheEnvironmentNamesTheFile) {
  setenv("WEIR_TERMINATION_LOG", "/tmp/words", 1);
  EXPECT_EQ(find_termination_log(), "/tmp/words");
  setenv("WEIR_TERMINATION_LOG", "", 1);
  EXPECT_EQ(find_termination_log(), "");
  unsetenv("WEIR_TERMINATION_LOG");
}

}  // namespace termination_test
}  // namespace weir
