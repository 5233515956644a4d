// SPDX-License-Identifier: Apache-2.0
// tests/bench/run planner [--runs=N] [--operator=PATH]: every graph in tests/data/planner against
// tests/operator/planner/README.md "Time and memory". Every figure is a process of its own, parsing
// included: wall time from fork to exit (median of N) and peak memory. With --operator also
// `weir-operator plan` for two device classes. Started with --one it is that process.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "operator/planner/async/engine.h"
#include "operator/planner/model/graph_text.h"
#include "tests/bench/sailor/sailor.h"

namespace {

using namespace weir;           // NOLINT: a program
using namespace weir::planner;  // NOLINT

const std::string kData = std::string(WEIR_SOURCE_DIR) + "/tests/data/planner/";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Rows of blocks of parallel branches with skips, as NASNet-A's cells: over 10^9 ideals.
std::string generated(int blocks, int branches, int length) {
  std::string nodes;
  std::string edges;
  int count = 0;
  const auto add = [&] {
    const int i = count++;
    char line[256];
    std::snprintf(line, sizeof line,
                  "node%d -- Op -- forward_compute_time=%.3f, backward_compute_time=%.3f, "
                  "activation_size=%d, parameter_size=%d\n",
                  i, 0.2 + 0.1 * (i * 7919 % 23), 0.4 + 0.2 * (i * 104729 % 19),
                  2'000'000 + i * 31337 % 9'000'000, i * 7577 % 900'000);
    nodes += line;
    return i;
  };
  const auto connect = [&](int from, int to) {
    edges += "\tnode" + std::to_string(from) + " -- node" + std::to_string(to) + "\n";
  };
  int tail = add();
  int before = -1;
  for (int b = 0; b < blocks; ++b) {
    std::vector<int> ends;
    for (int branch = 0; branch < branches; ++branch) {
      int at = tail;
      for (int i = 0; i < length; ++i) {
        const int next = add();
        connect(at, next);
        at = next;
      }
      ends.push_back(at);
    }
    const int join = add();
    for (const int end : ends) connect(end, join);
    if (before >= 0) connect(before, join);
    before = tail;
    tail = join;
  }
  return nodes + edges;
}

int one_graph(const std::string& name, int devices, bool transfers) {
  const std::string text =
      name == "generated" ? generated(18, 5, 12) : text_of(kData + "pipedream/" + name + ".txt");
  const Result<Model> model = decode_graph(text, name);
  const Result<Dag> dag = model.ok() ? dag_of(*model, {DagClass{}}, 1) : Result<Dag>(model.error());
  if (!dag.ok()) {
    std::fprintf(stderr, "%s\n", dag.error().message.c_str());
    return 3;
  }
  BottleneckProblem problem;
  problem.devices = devices;
  problem.transfers = transfers;
  const BottleneckPlan plan = plan_bottleneck(*dag, problem);
  const bool optimal = plan.certainty == Certainty::kOptimal;
  char status[64] = "optimal";
  if (!optimal) {
    std::snprintf(status, sizeof status, "within %.2f %%",
                  100 * (plan.value / plan.lower_bound - 1));
  }
  std::printf("%d|%zu|%.6f|%s", dag->nodes, plan.ideals, plan.value, status);
  return 0;
}

int one_sailor(const std::string& model, int a100, int v100) {
  SailorProblem problem;
  const std::string prefix = model == "OPT-350" ? "opt-350m-" : "gpt-neo-2.7b-";
  problem.global_batch = model == "OPT-350" ? 1024 : 2048;
  for (const auto& [name, count, gib] :
       {std::tuple{"A100-40", a100, 40}, std::tuple{"V100-16", v100, 16}}) {
    const std::string file = kData + "sailor/" + prefix + name + ".json";
    Result<SailorTimes> times = decode_sailor_times(text_of(file), file);
    if (!times.ok()) return 3;
    problem.devices.push_back({name, *std::move(times), count, gib * 1073741824.0});
  }
  const auto sizes = decode_sailor_sizes(text_of(kData + "sailor/llm_info.json"), model, "info");
  const auto network =
      decode_sailor_network(text_of(kData + "sailor/network_coeffs_all_homo.json"), "network");
  if (!sizes.ok() || !network.ok()) return 3;
  problem.sizes = *sizes;
  problem.network = *network;
  const Result<SailorPlan> plan = plan_sailor(problem);
  if (!plan.ok()) return 4;
  std::printf("%zu|%lld|%.4f|%zu stages x %d replicas%s", problem.sizes.begin()->second.size(),
              static_cast<long long>(plan->steps), plan->seconds, plan->stages.size(),
              plan->replicas, plan->finished ? "" : ", cut short");
  return 0;
}

struct Measured {
  double seconds = 0, mebibytes = 0;
  int status = 0;
  std::string output;
};

Measured run_once(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = vfork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  Measured measured;
  char buffer[65536];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    measured.output.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  rusage usage{};
  wait4(child, &measured.status, 0, &usage);
  measured.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  measured.mebibytes = static_cast<double>(usage.ru_maxrss) / 1024;
  return measured;
}

Measured median(const std::vector<std::string>& command, int runs) {
  std::vector<Measured> all;
  for (int i = 0; i < runs; ++i) all.push_back(run_once(command));
  std::sort(all.begin(), all.end(),
            [](const Measured& a, const Measured& b) { return a.seconds < b.seconds; });
  return all[all.size() / 2];
}

// tests/operator/planner/README.md "Time and memory".
struct Row {
  const char* graph;
  double target4, target8;  // seconds
  double most_mebibytes;
};

constexpr Row kRows[] = {
    {"alexnet", .01, .01, 64},  {"vgg16", .01, .01, 64},        {"squeezenet1_0", .01, .01, 64},
    {"resnet18", .01, .01, 64}, {"resnet50", .01, .02, 64},     {"densenet121", .02, .03, 64},
    {"gnmt", .01, .02, 64},     {"inception_v3", .5, 1.5, 200}, {"generated", .2, .5, 200},
};

struct SailorRow {
  const char* model;
  int a100, v100;
  double theirs, seconds;  // planning time; step of its plan in its formula, 0 = not known
};

constexpr SailorRow kSailorRows[] = {
    {"OPT-350", 32, 96, .54, 5.2597},
    {"OPT-350", 80, 240, 1.92, 0},
    {"OPT-350", 128, 384, 3.38, 1.9021},
    {"GPT-Neo-2.7", 32, 96, .93, 35.635},
};

int missed = 0;

const char* verdict(bool within) {
  if (!within) ++missed;
  return within ? "yes" : "NO";
}

std::string field(const std::string& line, std::size_t index) {
  std::size_t from = 0;
  for (; index > 0; --index) {
    const std::size_t bar = line.find('|', from);
    if (bar == std::string::npos) return "?";
    from = bar + 1;
  }
  return line.substr(from, line.find('|', from) - from);
}

void graphs(const std::string& self, int runs) {
  std::printf("smallest bottleneck, one class, 1e9 B/s\n");
  std::printf("%-14s %7s %9s %6s %9s  %10s %10s %7s %8s  %-7s %s\n", "graph", "devices",
              "transfers", "nodes", "ideals", "value, s", "process, s", "MiB", "target", "within",
              "certificate");
  for (const Row& row : kRows) {
    for (const int devices : {4, 8}) {
      for (const bool transfers : {true, false}) {
        const Measured measured = median(
            {self, "--one", row.graph, std::to_string(devices), transfers ? "1" : "0"}, runs);
        const double target = devices == 4 ? row.target4 : row.target8;
        const bool within = measured.status == 0 && measured.seconds <= target &&
                            measured.mebibytes <= row.most_mebibytes;
        std::printf("%-14s %7d %9s %6s %9s  %10s %10.4f %7.1f %8.2f  %-7s %s\n", row.graph, devices,
                    transfers ? "yes" : "no", field(measured.output, 0).c_str(),
                    field(measured.output, 1).c_str(), field(measured.output, 2).c_str(),
                    measured.seconds, measured.mebibytes, target, verdict(within),
                    field(measured.output, 3).c_str());
        std::fflush(stdout);
      }
    }
  }
}

void sailor(const std::string& self, int runs) {
  std::printf("\nSailor's cost model, A100 + V100; theirs: published planning time and step\n");
  std::printf("%-12s %10s %10s %7s %8s  %-7s %10s %10s  %s\n", "model", "devices", "process, s",
              "MiB", "theirs", "within", "step, s", "theirs", "plan");
  for (const SailorRow& row : kSailorRows) {
    const Measured measured = median(
        {self, "--sailor", row.model, std::to_string(row.a100), std::to_string(row.v100)}, runs);
    const std::string devices = std::to_string(row.a100) + " + " + std::to_string(row.v100);
    std::printf("%-12s %10s %10.4f %7.1f %8.2f  %-7s %10s %10.4f  %s\n", row.model, devices.c_str(),
                measured.seconds, measured.mebibytes, row.theirs,
                verdict(measured.status == 0 && measured.seconds <= row.theirs),
                field(measured.output, 2).c_str(), row.seconds, field(measured.output, 3).c_str());
  }
}

// The last column of tests/operator/planner/README.md "Time and memory".
void steps(const std::string& program, int runs) {
  struct Step {
    const char* graph;
    double target;
  };
  std::printf("\nweir-operator plan, 4 devices and 4 of half the speed, 1e9 B/s, k <= 4\n");
  std::printf("%-14s %10s %7s %8s  %-7s\n", "graph", "process, s", "MiB", "target", "within");
  for (const Step& row : {Step{"alexnet", .02}, Step{"vgg16", .02}, Step{"squeezenet1_0", .05},
                          Step{"resnet18", .05}, Step{"resnet50", .1}, Step{"densenet121", .3},
                          Step{"gnmt", .3}, Step{"inception_v3", 10}}) {
    const Measured measured =
        median({program, "plan", "--profile", kData + "pipedream/" + row.graph + ".txt",
                "--cluster", "4xA:32e9@1e9+4xB:16e9/2", "--k-max", "4", "--json"},
               runs);
    std::printf("%-14s %10.4f %7.1f %8.2f  %-7s\n", row.graph, measured.seconds, measured.mebibytes,
                row.target, verdict(measured.status == 0 && measured.seconds <= row.target));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 4 && args[0] == "--one") {
    return one_graph(args[1], std::atoi(args[2].c_str()), args[3] == "1");
  }
  if (args.size() == 4 && args[0] == "--sailor") {
    return one_sailor(args[1], std::atoi(args[2].c_str()), std::atoi(args[3].c_str()));
  }
  int runs = 5;
  std::string program;
  for (const std::string& arg : args) {
    if (arg.starts_with("--runs=")) runs = std::max(1, std::atoi(arg.c_str() + 7));
    if (arg.starts_with("--operator=")) program = arg.substr(11);
  }
  const std::string self = "/proc/self/exe";
  char path[4096];
  const ssize_t length = readlink(self.c_str(), path, sizeof path - 1);
  if (length <= 0) return 1;
  const std::string mine(path, static_cast<std::size_t>(length));
  graphs(mine, runs);
  sailor(mine, runs);
  if (!program.empty()) steps(program, runs);
  std::printf("%d rows miss their target\n", missed);
  return missed == 0 ? 0 : 1;
}
