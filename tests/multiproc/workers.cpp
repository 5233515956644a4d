// SPDX-License-Identifier: Apache-2.0
#include "tests/multiproc/workers.h"

#include <algorithm>
#include <arpa/inet.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <spawn.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/base/check.h"
#include "worker/schedule/families.h"

extern char** environ;

namespace weir::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kSignalled = 128;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::vector<LoggedStep> logged_steps(const std::string& loss_log) {
  std::vector<LoggedStep> found;
  std::istringstream lines(read_file(loss_log));
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object()) break;  // the last line is being written
    found.push_back({.step = entry["step"],
                     .epoch = entry["epoch"],
                     .loss_hex = entry["loss_hex"].is_string()
                                     ? entry["loss_hex"].get<std::string>()
                                     : std::string(),
                     .step_seconds = entry["step_seconds"],
                     .iteration_seconds = entry["iteration_seconds"],
                     .lateness_us = entry.value("lateness_us", std::vector<int>()),
                     .overruns = entry.value("overruns", 0)});
  }
  return found;
}

Process::Process(const std::vector<std::string>& arguments, const std::string& error_file,
                 const Host& host)
    : error_file_(error_file) {
  std::vector<std::string> words = host.prefix;
  words.push_back(host.program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, error_file.c_str(),
                                   O_CREAT | O_TRUNC | O_WRONLY, 0600);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  // Several workers share few CPUs. A test of threads says how many.
  setenv("WEIR_THREADS", "1", 0);
  if (posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
}

Process::~Process() {
  if (pid_ < 0 || status_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const {
  if (pid_ > 0 && !status_) kill(pid_, number);
}

std::optional<int> Process::wait(milliseconds limit) {
  if (pid_ < 0) return std::nullopt;
  eventually(
      [this] {
        int raw = 0;
        if (status_ || waitpid(pid_, &raw, WNOHANG) != pid_) return status_.has_value();
        status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : kSignalled + WTERMSIG(raw);
        return true;
      },
      limit);
  return status_;
}

std::string Process::errors() const {
  return read_file(error_file_);
}

std::optional<int> Process::logged(const std::string& key) const {
  const std::string field = "\"" + key + "\":";
  std::string text;
  const bool came = eventually([&] {
    text = errors();
    const auto at = text.find(field);
    return at != text.npos && text.find('\n', at) != text.npos;
  });
  if (!came) return std::nullopt;
  return std::stoi(text.substr(text.find(field) + field.size()));
}

bool Process::says(const std::string& text) const {
  return eventually([&] { return errors().find(text) != std::string::npos; });
}

std::string PlanText::json() const {
  nlohmann::json plan = {{"apiVersion", "weir.dev/plan/v1"},
                         {"revision", revision},
                         {"parent", revision - 1},
                         {"trigger", trigger},
                         {"state", state},
                         {"microBatches", shares.empty() ? std::vector{micro_batches} : shares}};
  std::vector<int> limits = caps;
  const int most = shares.empty() ? micro_batches : *std::ranges::min_element(shares);
  const auto family = schedule::family_of(type);
  WEIR_CHECK(family, "a family of schedules");
  const schedule::FamilyRules& rules = schedule::rules_of(*family);
  const int width = rules.only_k ? rules.only_k(most) : k;
  if (caps.empty()) limits = rules.caps(stages, most, width);
  plan["schedule"] = {{"type", type},
                      {"dispatch", dispatch},
                      {"k", width},
                      {"microBatchSize", micro_batch_size},
                      {"caps", limits}};
  if (split) {
    plan["apiVersion"] = "weir.dev/plan/v2";
    plan["schedule"]["split"] = {{"held", split->held}, {"postponed", split->postponed}};
  }
  if (!codecs.raw()) {
    plan["apiVersion"] = "weir.dev/plan/v4";
    const auto names = [](const std::vector<schedule::Codec>& list) {
      std::vector<std::string> out;
      for (const schedule::Codec codec : list) out.emplace_back(schedule::name(codec));
      return out;
    };
    plan["codecs"] = {{"forward", names(codecs.forward)}, {"backward", names(codecs.backward)}};
  }
  if (sync != "Exact") {
    plan["sync"] = {{"mode", sync},
                    {"groupSizeMax", group_size_max},
                    {"graceWindowPercent", grace_window_percent},
                    {"connectEvery", connect_every},
                    {"maxStaleness", max_staleness}};
  }
  for (int s = 0; s < stages; ++s) {
    const std::pair<int, int> range =
        ranges.empty() ? std::pair(layers * s / stages, layers * (s + 1) / stages - 1)
                       : ranges[static_cast<std::size_t>(s)];
    plan["stages"].push_back({{"index", s}, {"layers", {range.first, range.second}}});
  }
  for (int i = 0; (first_worker >= 0 || !on.empty()) && i < stages * replicas(); ++i) {
    const int worker = on.empty() ? first_worker + i : on[static_cast<std::size_t>(i)];
    plan["ranks"].push_back({{"pod", "worker-" + std::to_string(worker)},
                             {"local", 0},
                             {"replica", i / stages},
                             {"stage", i % stages}});
  }
  return plan.dump();
}

Workers::Workers(const PlanText& plan, std::vector<std::string> common,
                 const std::vector<std::vector<std::string>>& extra, int workers,
                 std::vector<Host> hosts)
    : plan_file_((folder_.path() / "plan.json").string()),
      common_(std::move(common)),
      workers_(workers > 0 ? workers : plan.stages * plan.replicas()),
      hosts_(std::move(hosts)) {
  write_plan(plan);
  for (int i = 0; i < workers_; ++i) {
    const auto index = static_cast<std::size_t>(i);
    processes_.push_back(
        start(i, index < extra.size() ? extra[index] : std::vector<std::string>()));
    if (i == 0) control_port_ = processes_[0]->logged("control_port").value_or(0);
  }
}

Host Workers::host(int worker) const {
  return hosts_.empty() ? Host{} : hosts_[static_cast<std::size_t>(worker)];
}

std::unique_ptr<Process> Workers::start(int index, const std::vector<std::string>& extra) {
  std::vector<std::string> words = common_;
  words.insert(words.end(),
               {"--plan=" + plan_file_, "--workers=" + std::to_string(workers_),
                "--worker-index=" + std::to_string(index),
                // A new coordinator is found where the old one was.
                "--control-port=" + std::to_string(index == 0 ? control_port_ : 0), "--data-port=0",
                "--metrics-port=0", "--step-report=0", "--loss-log=" + log_of(index)});
  if (!hosts_.empty()) words.push_back("--listen=" + host(index).address);
  if (index > 0) {
    words.push_back("--coordinator=" + host(0).address + ":" + std::to_string(control_port_));
  }
  words.insert(words.end(), extra.begin(), extra.end());
  const std::string errors =
      "errors-" + std::to_string(index) + "-" + std::to_string(starts_++) + ".log";
  return std::make_unique<Process>(words, (folder_.path() / errors).string(), host(index));
}

void Workers::restart(int index, const std::vector<std::string>& extra) {
  std::filesystem::remove(log_of(index));  // a new process goes on with a log that is there
  const auto place = processes_.begin() + index;
  *place = start(index, extra);
}

void Workers::write_plan(const PlanText& plan) const {
  const std::string fresh = plan_file_ + ".new";
  std::ofstream(fresh, std::ios::binary) << plan.json();
  std::filesystem::rename(fresh, plan_file_);
}

void Workers::remove_plan() const {
  std::filesystem::remove(plan_file_);
}

std::string Workers::log_of(int worker) const {
  return (folder_.path() / ("loss-" + std::to_string(worker) + ".jsonl")).string();
}

std::vector<LoggedStep> Workers::steps(int worker) const {
  return logged_steps(log_of(worker));
}

std::int64_t Workers::newest_step(int worker) const {
  constexpr std::streamoff kTail = 16'384;  // several lines
  std::ifstream file(log_of(worker), std::ios::binary | std::ios::ate);
  if (!file) return -1;
  file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kTail));
  std::ostringstream tail;
  tail << file.rdbuf();
  const std::string text = tail.str(), key = "\"step\": ";
  const auto line = text.rfind('\n');  // behind it the next one is being written
  const auto at = line == text.npos ? text.npos : text.rfind(key, line);
  return at == text.npos ? -1 : std::stoll(text.substr(at + key.size()));
}

bool Workers::reaches(int worker, std::int64_t count) const {
  return eventually([&] { return static_cast<std::int64_t>(steps(worker).size()) >= count; });
}

bool Workers::adopts(int worker, std::uint32_t epoch) const {
  return eventually([&] {
    const auto done = steps(worker);
    return !done.empty() && done.back().epoch >= epoch;
  });
}

std::vector<std::optional<int>> Workers::wait_all() {
  std::vector<std::optional<int>> codes;
  for (auto& process : processes_) codes.push_back(process->wait());
  return codes;
}

std::vector<std::optional<int>> Workers::end() {
  for (auto& process : processes_) process->signal(SIGTERM);
  return wait_all();
}

std::vector<std::string> losses(const std::vector<LoggedStep>& steps) {
  std::vector<std::string> list;
  for (const LoggedStep& step : steps) list.push_back(step.loss_hex);
  return list;
}

std::vector<std::string> losses_alone(const std::vector<std::string>& common, int micro_batches,
                                      std::optional<std::size_t> steps) {
  const TempDir folder;
  const std::string log = (folder.path() / "loss.jsonl").string();
  std::vector<std::string> words = common;
  words.insert(words.end(), {"--micro-batches=" + std::to_string(micro_batches),
                             "--micro-batch-size=2", "--loss-log=" + log, "--step-report=0"});
  Process alone(words, (folder.path() / "errors.log").string());
  if (!steps) return alone.wait() == 0 ? losses(logged_steps(log)) : std::vector<std::string>();
  std::vector<std::string> list;
  eventually([&] { return (list = losses(logged_steps(log))).size() >= *steps; });
  if (list.size() < *steps) return {};
  list.resize(*steps);
  return list;
}

std::string scrape(int port, const std::string& from) {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, from.c_str(), &address.sin_addr);
  const timeval limit{.tv_sec = 30, .tv_usec = 0};
  setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  std::string text;
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  if (connect(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(socket_fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t got = 0; (got = recv(socket_fd, buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
  }
  close(socket_fd);
  return text;
}

std::optional<double> metric(const std::string& text, const std::vector<std::string>& parts) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto has = [&](const std::string& part) { return line.find(part) != line.npos; };
    if (line.starts_with('#') || !std::all_of(parts.begin(), parts.end(), has)) continue;
    return std::stod(line.substr(line.rfind(' ') + 1));
  }
  return std::nullopt;
}

}  // namespace weir::test
