// SPDX-License-Identifier: Apache-2.0
// Spawns weir-worker processes, reads what they tell, ends them whatever happens.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/temp_dir.h"
#include "worker/schedule/plan.h"

namespace weir::test {

// --steps of a run that its test ends: a test that does something in the middle of training must
// not race against its end, because a busy machine may give it no processor for seconds.
constexpr int kNoEnd = 1'000'000;
constexpr int kTerminated = 143;  // exit code of a worker that ended at SIGTERM

// Where a worker runs, and what.
struct Host {
  std::vector<std::string> prefix = {};  // of its command line: {"ip", "netns", "exec", "a"}
  std::string address = "127.0.0.1";
  std::string program = WEIR_WORKER;
};

// One process; its standard error lies in a file.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const std::string& error_file,
          const Host& host = {});
  ~Process();  // kills it
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const;
  pid_t pid() const { return pid_; }
  // Exit code, or 128 + signal; nothing when it still runs after the limit.
  std::optional<int> wait(std::chrono::milliseconds limit = kPatience);
  std::string errors() const;  // standard error so far
  // The first number after `"key":` in the log; nothing when it does not come in time.
  std::optional<int> logged(const std::string& key) const;
  bool says(const std::string& text) const;  // polls the log for it

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
  std::string error_file_;
};

struct LoggedStep {
  std::int64_t step = 0;
  std::uint32_t epoch = 0;
  std::string loss_hex;  // empty but on the last stage
  double step_seconds = 0;
  double iteration_seconds = 0;
  std::vector<int> lateness_us;  // with emulated compute
  int overruns = 0;
};

std::vector<LoggedStep> logged_steps(const std::string& loss_log);

struct PlanText {
  std::string type = "OneFOneB", dispatch = "Strict", trigger = "Initial", state = "Keep";
  int revision = 1, k = 1, stages = 2, micro_batches = 5, micro_batch_size = 2, layers = 8;
  int first_worker = -1;    // stage s on worker first_worker + s; -1: left to the coordinator
  std::vector<int> on;      // or: the worker of each stage
  std::vector<int> shares;  // micro-batches of each replica; empty: one replica with all
  std::vector<int> caps;    // empty: those of the family
  std::optional<schedule::Split> split = {};
  schedule::Codecs codecs = {};
  std::vector<std::pair<int, int>> ranges;  // layers of each stage, inclusive; empty: equally many
  std::string sync = "Exact";
  int group_size_max = 4, grace_window_percent = 15, connect_every = 10;  // with Partial
  double max_staleness = 6;
  int replicas() const { return shares.empty() ? 1 : static_cast<int>(shares.size()); }
  std::string json() const;
};

// A pipeline: one worker per stage, worker 0 coordinates from a plan file.
class Workers {
 public:
  // One worker per stage, or `workers`. common: arguments of every worker, for example
  // {"--model=mlp", "--steps=5"}.
  Workers(const PlanText& plan, std::vector<std::string> common,
          const std::vector<std::vector<std::string>>& extra = {}, int workers = 0,
          std::vector<Host> hosts = {});  // one per worker; empty: all on the loopback

  int count() const { return static_cast<int>(processes_.size()); }
  Process& operator[](int index) { return *processes_[static_cast<std::size_t>(index)]; }
  void write_plan(const PlanText& plan) const;  // atomically
  void remove_plan() const;
  std::vector<LoggedStep> steps(int worker) const;
  // Number of the newest step in its loss log, from the end of the file; -1: none.
  std::int64_t newest_step(int worker) const;
  bool reaches(int worker, std::int64_t steps) const;  // polls its loss log
  bool adopts(int worker, std::uint32_t epoch) const;
  std::vector<std::optional<int>> wait_all();
  // SIGTERM to all: they finish the running step and leave together.
  std::vector<std::optional<int>> end();
  // Starts worker `index` again, as a new pod would.
  void restart(int index, const std::vector<std::string>& extra = {});

 private:
  std::unique_ptr<Process> start(int index, const std::vector<std::string>& extra);
  std::string log_of(int worker) const;
  Host host(int worker) const;

  TempDir folder_;
  std::string plan_file_;
  std::vector<std::string> common_;
  int workers_, control_port_ = 0, starts_ = 0;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<Process>> processes_;
};

// Losses of a worker alone with the same batch, which every plan must give: of all steps, or of the
// first `steps`. Empty if it fails.
std::vector<std::string> losses_alone(const std::vector<std::string>& common, int micro_batches,
                                      std::optional<std::size_t> steps = std::nullopt);
std::vector<std::string> losses(const std::vector<LoggedStep>& steps);

// GET /metrics of a port; empty when it does not answer.
std::string scrape(int port, const std::string& address = "127.0.0.1");
// Value of the first series whose name and labels contain all of `parts`.
std::optional<double> metric(const std::string& text, const std::vector<std::string>& parts);

}  // namespace weir::test
