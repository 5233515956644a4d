// SPDX-License-Identifier: Apache-2.0
#include "worker/base/termination.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Termination, HoldsOnePlainLineThatKubernetesTakes) {
  EXPECT_EQ(plain_line("no plan\n"), "no plan");
  EXPECT_EQ(plain_line("a\nb\tc\x7f"
                       "d"),
            "a b c d");
  EXPECT_EQ(plain_line("bad \xff byte"), "bad \xEF\xBF\xBD byte");

  const std::string cut = plain_line(std::string(3000, 'x'));
  EXPECT_EQ(cut.size(), kMaxTerminationMessage);
  EXPECT_TRUE(cut.ends_with("x ..."));
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\xC3\xBC";
  for (const std::size_t most : {100U, 101U}) {
    const std::string part = plain_line(umlauts, most);
    EXPECT_LE(part.size(), most);
    EXPECT_EQ(plain_line(part, most), part);  // no half character, which would become U+FFFD
  }
}

TEST(Termination, ReplacesWhatTheFileHeld) {
  const test::TempDir dir;
  const std::string path = dir.file("log", "the words of an earlier start, which were longer");
  set_termination_log(path);

  write_termination_message("storage is gone");

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

}  // namespace
}  // namespace weir
