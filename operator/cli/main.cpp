// SPDX-License-Identifier: Apache-2.0
// kubectl-weir, the plugin `kubectl weir`. Exit codes: 0 = done, 1 = the cluster or the job says
// no, 2 = wrong options or kubeconfig.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

#include "operator/cli/commands.h"
#include "operator/cli/connect.h"
#include "operator/cli/name_service.h"
#include "operator/cli/options.h"
#include "operator/cli/text.h"
#include "operator/cli/trace.h"
#include "operator/kube/auth.h"
#include "worker/base/digest.h"
#include "worker/base/exception_text.h"
#include "worker/base/log.h"

namespace weir::cli {
namespace {

constexpr int kWrongConfig = 2;
constexpr std::size_t kIdBytes = 6;  // nobody else's request has it

int run(int argc, char** argv) {
  Parsed parsed = parse_options(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  if (parsed.options.command == Command::kVersion) {
    std::cout << "kubectl-weir " << WEIR_VERSION << "\n";
    return 0;
  }
  if (parsed.options.command == Command::kTrace && !parsed.options.from.empty()) {
    return convert_trace(parsed.options, std::cout, std::cerr);
  }
  set_log(LogLevel::kError, LogFormat::kText);
  use_built_in_lookups();
  const auto connection = connect(parsed.options, [](const std::string& name) {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    return std::string(value == nullptr ? "" : value);
  });
  if (!connection) {
    std::cerr << "kubectl weir: " << printable(connection.error().message) << "\n";
    return kWrongConfig;
  }
  Options& options = parsed.options;
  if (options.namespace_name.empty())
    options.namespace_name = connection->credentials.namespace_name;
  if (options.namespace_name.empty()) options.namespace_name = "default";
  SystemClock clock;
  kube::TokenSource token(connection->credentials.token, connection->credentials.token_file, clock);
  const auto client = kube::make_client(*connection->transport, token, clock,
                                        {.user_agent = "kubectl-weir/" WEIR_VERSION});
  return run_command(options, {.client = *client,
                               .now = clock.system_now(),
                               .out = std::cout,
                               .err = std::cerr,
                               .request_id = to_hex(random_bytes(kIdBytes)),
                               .sleep = [&clock](std::chrono::seconds time) {
                                 clock.sleep_until(clock.now() + time, {});
                               }});
}

}  // namespace
}  // namespace weir::cli

int main(int argc, char** argv) {
  try {
    return weir::cli::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kubectl weir: %s\n", weir::describe(e).c_str());
  }
  return 1;
}
