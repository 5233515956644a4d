// SPDX-License-Identifier: Apache-2.0
#include "tests/recorded/commands.h"

#include <filesystem>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "operator/app/options.h"
#include "operator/app/plan_command.h"

namespace weir::recorded {

std::string told_by(const std::string& command, const std::string& input) {
  using operator_app::Command;
  std::filesystem::current_path(WEIR_SOURCE_DIR);  // profiles are named from there
  std::vector<std::string> words;
  std::istringstream line("weir-operator " + command);
  for (std::string word; line >> word;) words.push_back(word);
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());

  const auto parsed =
      operator_app::parse_options(static_cast<int>(arguments.size()), arguments.data());
  EXPECT_EQ(parsed.exit_code, -1) << command;
  std::istringstream in(input);
  std::ostringstream out, err;
  const int code = parsed.options.command == Command::kPlan
                       ? operator_app::plan_command(parsed.options.plan, in, out, err)
                       : operator_app::simulate_command(parsed.options.simulate, in, out, err);
  return (code == 0 ? "" : "exit code " + std::to_string(code) + "\n") + out.str() + err.str();
}

}  // namespace weir::recorded
