// SPDX-License-Identifier: Apache-2.0
// Runs `weir-operator plan` and `simulate` in the test's process: files and text in, text out.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "operator/app/plan_command.h"

namespace weir::operator_app::test {

inline const std::string kGraphs = WEIR_SOURCE_DIR "/tests/data/planner/pipedream/";

// Four layers, b and c between a and d.
inline constexpr const char* kDiamond =
    "a -- A -- forward_compute_time=10, backward_compute_time=20, activation_size=1000000, "
    "parameter_size=4000\n"
    "b -- B -- forward_compute_time=8, backward_compute_time=16, activation_size=1000000, "
    "parameter_size=4000\n"
    "c -- C -- forward_compute_time=9, backward_compute_time=18, activation_size=1000000, "
    "parameter_size=4000\n"
    "d -- D -- forward_compute_time=10, backward_compute_time=20, activation_size=1000000, "
    "parameter_size=4000\n"
    "\ta -- b\n\ta -- c\n\tb -- d\n\tc -- d\n";

struct Ran {
  int code = 0;
  std::string out, err;
};

template <class Options>
Ran run_command(int (*command)(const Options&, std::istream&, std::ostream&, std::ostream&),
                const Options& options, const std::string& input) {
  std::istringstream in(input);
  std::ostringstream out, err;
  const int code = command(options, in, out, err);
  return {code, out.str(), err.str()};
}
inline Ran ran(const PlanOptions& options, const std::string& input = "") {
  return run_command(&plan_command, options, input);
}
inline Ran ran(const SimulateOptions& options, const std::string& input = "") {
  return run_command(&simulate_command, options, input);
}

inline PlanOptions plan_of(const std::string& profile, const std::string& cluster) {
  PlanOptions options;
  options.inputs.profile = profile;
  options.inputs.cluster = cluster;
  return options;
}

// A file that goes away with the test.
class Scratch {
 public:
  explicit Scratch(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) /
              (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
               name)) {}
  ~Scratch() { std::filesystem::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path() const { return path_.string(); }
  std::string name() const { return path_.filename().string(); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string read() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

}  // namespace weir::operator_app::test
