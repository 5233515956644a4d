// SPDX-License-Identifier: Apache-2.0
// The command line of weir-operator as a struct.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "operator/app/plan_options.h"
#include "worker/base/log.h"
#include "worker/http/transport.h"

namespace weir::operator_app {

enum class Command : unsigned char { kRun, kCheck, kPlan, kSimulate, kVersion };

struct Options {
  Command command = Command::kRun;
  bool dry_run = false;  // of run: print the list of steps

  std::string kubeconfig;                     // "" = KUBECONFIG, in-cluster, ~/.kube/config
  std::string namespace_name;                 // of the operator itself
  std::string name = "weir-operator";         // of its Lease; its Secret is <name>-keys
  std::vector<std::string> watch_namespaces;  // empty = all
  int concurrent_reconciles = 8;
  double kube_api_qps = 100, kube_api_burst = 200;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kJson;
  std::chrono::seconds lease_duration{15}, renew_deadline{10}, retry_period{2};
  std::chrono::seconds verify_interval{1800};
  bool volcano = false;  // watch PodGroups of Volcano

  std::string prometheus_url;  // "" = not configured
  std::chrono::seconds prometheus_scrape_interval{2};
  std::string prometheus_namespace_label = "namespace";
  std::string prometheus_bearer_token_file, prometheus_ca_file, prometheus_extra_matchers;
  std::string prometheus_basic_auth_dir;  // with files username and password
  http::Headers prometheus_headers;       // sent with every query, such as X-Scope-OrgID
  std::string control_address;            // of check: host:port of the control API; "" = none

  int control_port = 8443, metrics_port = 8080, health_port = 8081;
  std::string control_service = "weir-operator";
  std::string control_tls_dir;  // the user's certificate of the control API; "" = self-made

  std::string pod_name, pod_ip;  // environment POD_NAME, POD_IP

  std::string keys_secret_name() const { return name + "-keys"; }

  PlanOptions plan;
  SimulateOptions simulate;
};

struct Parsed {
  Options options;
  int exit_code = -1;  // -1 = run the command; 0 = help was printed; 2 = an error was printed
};
Parsed parse_options(int argc, const char* const* argv);

}  // namespace weir::operator_app
