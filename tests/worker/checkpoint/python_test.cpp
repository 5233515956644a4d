// SPDX-License-Identifier: Apache-2.0
// A checkpoint opened with the safetensors package of Python. Skips itself where there is none:
// `pip install safetensors numpy`, or WEIR_PYTHON=<python of a virtual environment that has them>.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker/checkpoint/stages.h"

namespace weir::checkpoint::test {
namespace python_test {

std::string python() {
  const char* chosen = std::getenv("WEIR_PYTHON");
  return chosen != nullptr ? chosen : "python3";
}

// What it prints; empty when it fails.
std::string run_python(const std::string& program, const std::string& argument) {
  const std::string command = python() + " -c '" + program + "' " + argument + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  return pclose(pipe) == 0 ? text : "";
}

TEST(Checkpoint, IsReadByTheSafetensorsPackageOfPython) {
  if (run_python("import safetensors.numpy; print(1)", "").empty()) {
    GTEST_SKIP() << "no Python with safetensors and numpy; set WEIR_PYTHON to one";
  }
  const weir::test::TempDir folder;
  SmallStage stage(0, 7, 1);
  Disk disk;
  const std::array<SmallStage*, 1> one = {&stage};
  ASSERT_TRUE(save_all(disk, folder.path().string(), 3, one));

  const std::string printed = run_python(
      "import sys, safetensors.numpy as s\n"
      "t = s.load_file(sys.argv[1])\n"
      "names = sorted(t)\n"
      "print(len(names), names[-1], list(t[names[-1]].shape), t[names[-1]].dtype,"
      " float(t[names[-1]].reshape(-1)[1]).hex())",
      (folder.path() / folder_name(3) / layer_file(2)).string());

  std::vector<stage::Parameter> layer;
  for (const stage::Parameter& p : stage.stage->parameters()) {
    if (p.layer == 2) layer.push_back(p);
  }
  const auto last = std::ranges::max_element(layer, {}, &stage::Parameter::name);
  std::string shape;
  for (const auto extent : last->shape)
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  EXPECT_NE(printed.find(std::to_string(3 * layer.size()) + " value/" + last->name + " [" + shape +
                         "] float32 "),
            std::string::npos)
      << printed;
  const double value = last->value[1];
  EXPECT_EQ(std::strtod(printed.substr(printed.rfind(' ') + 1).c_str(), nullptr), value) << printed;
}

}  // namespace python_test
}  // namespace weir::checkpoint::test
