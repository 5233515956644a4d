// SPDX-License-Identifier: Apache-2.0
// Names, environment names, defaults and help of all options of both programs.
#include "operator/app/options.h"

#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/recorded/recording.h"
#include "worker/app/options.h"

namespace weir::recorded {
namespace options_test {

std::string help_of_operator(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "weir-operator");
  testing::internal::CaptureStdout();
  const auto parsed =
      operator_app::parse_options(static_cast<int>(arguments.size()), arguments.data());
  std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(parsed.exit_code, 0);
  return text;
}

TEST(RecordedOptions, OfTheOperatorAreTheSame) {
  std::string text = "\nweir-operator --help\n" + help_of_operator({"--help"});
  for (const char* command : {"run", "check", "plan", "simulate", "version"}) {
    text += std::string("\nweir-operator ") + command + " --help\n" +
            help_of_operator({command, "--help"});
  }
  // These two are not in the help; the chart sets them.
  ::setenv("POD_NAME", "op-1", 1);
  ::setenv("POD_IP", "10.0.0.9", 1);
  const char* arguments[] = {"weir-operator", "run"};
  const auto parsed = operator_app::parse_options(2, arguments);
  ::unsetenv("POD_NAME");
  ::unsetenv("POD_IP");
  text += "\nPOD_NAME sets --pod-name: " + parsed.options.pod_name +
          "\nPOD_IP sets --pod-ip: " + parsed.options.pod_ip + "\n";
  compare_text("options-operator.txt", "Options of weir-operator.", text);
}

TEST(RecordedOptions, OfTheWorkerAreTheSame) {
  const char* arguments[] = {"weir-worker", "--help"};
  const auto help = app::parse_options(2, arguments);
  const auto plain = app::parse_options(1, arguments);
  ASSERT_TRUE(help.ok() && plain.ok());
  const auto& o = std::get<app::Options>(*plain);
  std::string text = "\n" + std::get<app::Help>(*help).text + "\nDefaults that the help has not\n";
  const auto add = [&text](const char* option, const std::string& value) {
    text += std::string(option) + " " + (value.empty() ? "none" : value) + "\n";
  };
  const auto port = [](const std::optional<int>& value) {
    return value ? std::to_string(*value) : "none";
  };
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
  };
  add("--job-name", o.job_name);
  add("--job-namespace", o.job_namespace);
  add("--job-uid", o.job_uid);
  add("--worker-group", o.worker_group);
  add("--node", o.node);
  add("--pod", o.pod);
  add("--attempt", std::to_string(o.attempt));
  add("--ranks", std::to_string(o.ranks));
  add("--transport", o.transport);
  add("--control-port", port(o.control_port));
  add("--data-port", port(o.data_port));
  add("--metrics-port", port(o.metrics_port));
  add("--emulate-send-window", port(o.emulation.send_window));
  add("--pace-rate", std::to_string(o.emulation.pace_bytes_per_second));
  add("--pace-other-rate", std::to_string(o.emulation.pace_other_bytes_per_second));
  add("--checkpoint-minutes", seconds(o.checkpoint_period));
  add("--connect-timeout", seconds(o.connect_timeout));
  add("listens on", o.listen_ip());
  compare_text("options-worker.txt", "Options of weir-worker, of a build without CUDA.", text);
}

}  // namespace options_test
}  // namespace weir::recorded
