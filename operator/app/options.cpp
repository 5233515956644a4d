// SPDX-License-Identifier: Apache-2.0
// This file and plan_options.cpp alone include CLI11, which takes 7 s to compile.
#include "operator/app/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <deque>
#include <iostream>
#include <map>
#include <regex>
#include <string_view>

#include <CLI/CLI.hpp>

#include "worker/base/utf8.h"
#include "worker/command_line/numbers.h"
#include "worker/command_line/rows.h"
#include "worker/http/text.h"

namespace weir::operator_app {
namespace {

constexpr int kWrongOptions = 2;
constexpr std::size_t kLongestError = 400;
constexpr std::size_t kLongestName = 58;  // <name>-keys must fit into 63 characters, too

// Reads a duration such as "15s", "2m", "1h" or "15" (seconds), at least 1 s. Returns what is wrong
// with the text, or "".
std::string seconds_error(const std::string& text, std::chrono::seconds* out) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const std::map<std::string, long> units{{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
  const auto factor = units.find(unit);
  if (error != std::errc{} || value <= 0 || value > 86400 || factor == units.end()) {
    return in_quotes(text) + " is no duration such as 15s or 2m";
  }
  if (out != nullptr) *out = std::chrono::seconds(value * factor->second);
  return "";
}

void add_duration(CLI::App& app, const std::string& name, std::chrono::seconds& target,
                  const std::string& help) {
  app.add_option_function<std::string>(
         name, [&target](const std::string& text) { seconds_error(text, &target); },
         help + " [" + std::to_string(target.count()) + "s]")
      ->check(CLI::Validator([](std::string& text) { return seconds_error(text, nullptr); },
                             "DURATION"));
}

// Refuses a value here that the API server or Prometheus would refuse later, in a message that does
// not name the option.
CLI::Validator matching(const char* pattern, std::size_t longest, const std::string& rule) {
  return {[expression = std::regex(pattern), longest, rule](std::string& text) -> std::string {
            const bool good = text.size() <= longest && std::regex_match(text, expression);
            return good ? "" : in_quotes(text) + " is no " + rule;
          },
          ""};
}

CLI::Validator a_namespace() {
  return matching("([a-z0-9]([-a-z0-9]*[a-z0-9])?)?", 63,
                  "namespace: at most 63 of a-z, 0-9 and -, a letter or digit at both ends");
}

// Returns what is wrong with a URL, or "". The text is not quoted, as it may hold a password.
std::string url_error(const std::string& text) {
  if (text.empty()) return "";
  const auto url = http::parse_base_url(text);
  return url ? "" : url.error().message + " (a password: --prometheus-basic-auth-dir)";
}

// "Name: value" as a header.
Result<std::pair<std::string, std::string>> header_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const auto is_token = [](char c) {  // RFC 9110, 5.6.2
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  if (colon == text.npos || name.empty() || !std::ranges::all_of(name, is_token)) {
    return invalid("expected NAME: VALUE, such as X-Scope-OrgID: team-a");
  }
  const std::size_t value = text.find_first_not_of(' ', colon + 1);
  const bool control = std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; });
  if (value == text.npos || control) return invalid("header " + name + " has no value of one line");
  return std::pair(name, text.substr(value));
}

void add_cluster(Rows& rows, Options& options) {
  rows.add("--kubeconfig", options.kubeconfig,
           "kubeconfig file; default: KUBECONFIG, then the pod's own account, then "
           "~/.kube/config");
  rows.add("--namespace", options.namespace_name,
           "namespace of the operator itself; default: the namespace of its credentials, "
           "then default",
           a_namespace(), "POD_NAMESPACE");
  rows.add("--name", options.name,
           "name of the operator's Lease and, with -keys behind it, of its Secret; two "
           "operators in one namespace need two names",
           "WEIR_NAME",
           matching("[a-z0-9]([-a-z0-9.]*[a-z0-9])?", kLongestName,
                    "name: expected 1 to 58 characters of a-z, 0-9, - and ., a letter or digit "
                    "at both ends"));
  rows.add("--watch-namespaces", options.watch_namespaces,
           "namespaces whose jobs the operator runs, separated by commas; default: all",
           a_namespace(), "WEIR_WATCH_NAMESPACES")
      ->delimiter(',');
  rows.add("--log-level", options.log_level,
           Words<LogLevel>{{"debug", LogLevel::kDebug},
                           {"error", LogLevel::kError},
                           {"info", LogLevel::kInfo},
                           {"warn", LogLevel::kWarn}},
           "least level that is logged: debug, info, warn or error")
      ->option_text("LEVEL [info]");
  rows.add("--log-format", options.log_format,
           Words<LogFormat>{{"json", LogFormat::kJson}, {"text", LogFormat::kText}},
           "format of a log line: json or text")
      ->option_text("FORMAT [json]");
}

// The environment variables are set in the operator's container, so that `check` in its pod uses
// the values of `run`.
void add_prometheus(Rows& rows, Options& options) {
  rows.add("--prometheus-url", options.prometheus_url,
           "base URL of the Prometheus server with the workers' metrics; if unset, jobs are "
           "not adapted",
           CLI::Validator([](std::string& text) { return url_error(text); }, "URL"),
           "WEIR_PROMETHEUS_URL");
  add_duration(rows.app(), "--prometheus-scrape-interval", options.prometheus_scrape_interval,
               "interval at which Prometheus scrapes the workers");
  rows.add(
      "--prometheus-namespace-label", options.prometheus_namespace_label,
      "label in which Prometheus keeps the namespace of a scraped pod; if empty, series "
      "are not checked for it",
      matching("([a-zA-Z_][a-zA-Z0-9_]*)?", 1024, "label: letters, digits and _, no digit first"));
  rows.add("--prometheus-bearer-token-file", options.prometheus_bearer_token_file,
           "file with a bearer token for Prometheus, read again each minute",
           "WEIR_PROMETHEUS_BEARER_TOKEN_FILE");
  rows.add("--prometheus-basic-auth-dir", options.prometheus_basic_auth_dir,
           "folder with files username and password for Prometheus, read again each minute",
           "WEIR_PROMETHEUS_BASIC_AUTH_DIR");
  rows.add("--prometheus-ca-file", options.prometheus_ca_file,
           "file with the only CA that is trusted for Prometheus over https; default: the "
           "system's CAs",
           "WEIR_PROMETHEUS_CA_FILE");
  rows.add("--prometheus-extra-matchers", options.prometheus_extra_matchers,
           "label matchers added to every query, such as cluster=\"a\"");
  rows.app()
      .add_option_function<std::vector<std::string>>(
          "--prometheus-header",
          [&options](const std::vector<std::string>& lines) {
            options.prometheus_headers.clear();
            for (const std::string& line : lines) {
              if (auto header = header_of(line)) options.prometheus_headers.push_back(*header);
            }
          },
          "header sent with every query, such as 'X-Scope-OrgID: team-a'; may be given more than "
          "once")
      ->delimiter('\n')  // in the environment variable
      ->check(CLI::Validator(
          [](std::string& text) {
            const auto header = header_of(text);
            return header ? std::string() : header.error().message;
          },
          "NAME: VALUE"))
      ->envname("WEIR_PROMETHEUS_HEADERS");
}

void add_certificates(Rows& rows, Options& options) {
  rows.add("--control-tls-dir", options.control_tls_dir,
           "folder with files tls.crt, tls.key and ca.crt for the control API, read again "
           "each minute; if unset, the operator makes its own certificate",
           "WEIR_CONTROL_TLS_DIR");
}

void add_run(Rows& rows, Options& options) {
  rows.add("--dry-run", options.dry_run, "print the steps of a start and exit");
  rows.add("--concurrent-reconciles", options.concurrent_reconciles,
           "number of jobs that are reconciled at the same time", whole_in(1, 64));
  rows.add("--kube-api-qps", options.kube_api_qps,
           "most requests per second to the API server, on average", number_in(1, 10000));
  rows.add("--kube-api-burst", options.kube_api_burst,
           "most requests to the API server at once after a pause", number_in(1, 10000));
  add_duration(rows.app(), "--lease-duration", options.lease_duration,
               "time without a renewal of the lease after which a follower takes over");
  add_duration(rows.app(), "--renew-deadline", options.renew_deadline,
               "time without a renewal of the lease after which the leader exits");
  add_duration(rows.app(), "--retry-period", options.retry_period,
               "time between two tries to get or renew the lease");
  add_duration(rows.app(), "--verify-interval", options.verify_interval,
               "time, +-20 %, after which a cache is compared with the API server when its watch "
               "ends");
  rows.add("--volcano", options.volcano,
           "watch the PodGroups of Volcano, so that jobs report why a gang waits");
  const auto port = whole_in(0, 65535);
  rows.add("--control-port", options.control_port,
           "port of the control API, to which workers connect; 0: any free port", port);
  rows.add("--control-service", options.control_service,
           "name of the Service in front of the control API",
           matching("[a-z]([-a-z0-9]*[a-z0-9])?", 63,
                    "name of a Service: at most 63 of a-z, 0-9 and -, a letter first"));
  rows.add("--metrics-port", options.metrics_port, "port of /metrics; 0: any free port", port);
  rows.add("--health-port", options.health_port, "port of /healthz and /readyz; 0: any free port",
           port);
  rows.add("--pod-name", options.pod_name, "name of this pod", "POD_NAME")->group("");
  rows.add("--pod-ip", options.pod_ip, "address of this pod", "POD_IP")->group("");
}

// CLI11 takes "--x=" for a missing value and uses the next argument instead. So "--x=" becomes
// "--x" and "".
std::vector<const char*> with_empty_values(int argc, const char* const* argv,
                                           std::deque<std::string>& storage) {
  std::vector<const char*> out;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (i == 0 || !argument.starts_with("--") || !argument.ends_with('=')) {
      out.push_back(argv[i]);
      continue;
    }
    storage.emplace_back(argument.substr(0, argument.size() - 1));
    out.push_back(storage.back().c_str());
    out.push_back("");
  }
  return out;
}

// Checks rules about several options.
void check_together(const Options& options) {
  if (options.renew_deadline >= options.lease_duration) {
    throw CLI::ValidationError("--renew-deadline", "must be below --lease-duration");
  }
  if (options.retry_period >= options.renew_deadline) {
    throw CLI::ValidationError("--retry-period", "must be below --renew-deadline");
  }
  const std::pair<const char*, int> ports[] = {{"--control-port", options.control_port},
                                               {"--metrics-port", options.metrics_port},
                                               {"--health-port", options.health_port}};
  for (const auto& [name, port] : ports) {
    for (const auto& [other, taken] : ports) {
      if (name != other && port == taken && port != 0) {
        throw CLI::ValidationError(name, std::string("must differ from ") + other);
      }
    }
  }
  if (!options.prometheus_basic_auth_dir.empty() && !options.prometheus_bearer_token_file.empty()) {
    throw CLI::ValidationError("--prometheus-basic-auth-dir",
                               "excludes --prometheus-bearer-token-file");
  }
}

// The error in one line, even if CLI11's text or a value has several.
std::string error_line(const CLI::App*, const CLI::Error& error) {
  return one_line(error.what(), kLongestError) + " (--help lists the options)\n";
}

}  // namespace

Parsed parse_options(int argc, const char* const* argv) {
  Parsed parsed;
  Options& options = parsed.options;
  CLI::App app{"weir-operator: runs PipelineJobs and adapts them to the network"};
  app.require_subcommand(1);
  app.failure_message(error_line);
  // If an option is given twice, the last one counts, so that arguments can be appended.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  CLI::App* run = app.add_subcommand("run", "run the operator");
  Rows run_rows(*run);
  add_cluster(run_rows, options);
  add_run(run_rows, options);
  add_certificates(run_rows, options);
  add_prometheus(run_rows, options);
  CLI::App* check = app.add_subcommand("check", "print what the operator lacks in this cluster");
  // CLI11 reads the environment for both commands, whichever is given, so each has its own struct.
  Options of_check;
  Rows check_rows(*check);
  add_cluster(check_rows, of_check);
  add_certificates(check_rows, of_check);
  add_prometheus(check_rows, of_check);
  check_rows.add(
      "--control-address", of_check.control_address,
      "host:port of the control API, such as weir-operator.weir-system.svc:8443; if unset, the "
      "control API is not checked");
  CLI::App* plan = app.add_subcommand("plan", "plan a model for a cluster; needs no Kubernetes");
  add_plan_options(*plan, options.plan);
  CLI::App* simulate =
      app.add_subcommand("simulate", "simulate a step of a plan; needs no Kubernetes");
  add_simulate_options(*simulate, options.simulate);
  app.add_subcommand("version", "print the version");
  try {
    std::deque<std::string> storage;
    const auto arguments = with_empty_values(argc, argv, storage);
    app.parse(static_cast<int>(arguments.size()), arguments.data());
    if (check->parsed()) options = of_check;
    check_together(options);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e, std::cout, std::cerr);
    parsed.exit_code = code == 0 ? 0 : kWrongOptions;
    return parsed;
  }
  options.command = run->parsed()        ? Command::kRun
                    : check->parsed()    ? Command::kCheck
                    : plan->parsed()     ? Command::kPlan
                    : simulate->parsed() ? Command::kSimulate
                                         : Command::kVersion;
  return parsed;
}

}  // namespace weir::operator_app
