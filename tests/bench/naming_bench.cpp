// SPDX-License-Identifier: Apache-2.0
// What the operator names as the cause of slow steps of real workers: pipelines of four emulated
// stages, one and two replicas, each link behind a class of HTB. First they train as usual, then
// with a fault, of every kind, at the first, middle and last stage. Goal: kind and place right in
// all; the cost is told beside what steps without the fault take less. A case in which a busy
// machine kept the workers waiting is not judged. Root.
//   naming_bench [--cases=N,N,...]
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/named_job.h"
#include "worker/base/units.h"

namespace weir::bench {
namespace {

using namespace std::chrono_literals;
using explain::Kind;

constexpr int kFail = 1, kWrongUse = 2, kSkipped = 77;
constexpr int kMostLate = 5000;  // microseconds, p99: beyond, ranks really pause
constexpr int kUsualReports = 5, kFaultyReports = 5;  // one each 5 s
constexpr int kSaveEvery = 5;                         // steps
constexpr int kDeviceSlowAfter = 22;                  // seconds: behind the last usual report
constexpr double kSlowDevice = 1.7, kSlowLink = 7, kSlowSums = 16;
constexpr double kDataDelay = 0.008, kSaveDelay = 0.2;  // seconds: of a sample, of a copy
constexpr int kFirstSlot = 100;                         // of namespaces: cases may run side by side
constexpr auto kPause = 60ms, kBetweenPauses = 330ms;

enum class Fault : unsigned char {
  kNone,
  kDevice,
  kForward,
  kBackward,
  kData,
  kSharedData,  // of all replicas, as of one storage
  kSums,
  kPauses,
  kSave
};

struct Case {
  Fault fault = Fault::kNone;
  int replicas = 1, replica = 0, stage = 0;  // a link: the stage before it
};

// Data is loaded by the first and the last stage.
std::vector<Case> all_cases() {
  constexpr int kFirst = 0, kMiddle = 1, kLast = NamedJob::kStages - 1;
  std::vector<Case> cases;
  for (const Fault fault : {Fault::kDevice, Fault::kPauses, Fault::kSave}) {
    for (const int stage : {kFirst, kMiddle, kLast}) cases.push_back({fault, 1, 0, stage});
  }
  for (const Fault fault : {Fault::kForward, Fault::kBackward}) {
    for (const int stage : {kFirst, kMiddle, kLast - 1}) cases.push_back({fault, 1, 0, stage});
  }
  for (const int stage : {kFirst, kLast}) cases.push_back({Fault::kData, 1, 0, stage});
  for (const int stage : {kFirst, kMiddle, kLast}) {
    cases.push_back({Fault::kSums, 2, stage % 2, stage});
    cases.push_back({Fault::kDevice, 2, 1 - stage % 2, stage});
  }
  cases.push_back({Fault::kForward, 2, 1, kFirst});
  cases.push_back({Fault::kBackward, 2, 0, kLast - 1});
  cases.push_back({Fault::kData, 2, 1, kLast});
  cases.push_back({Fault::kPauses, 2, 0, kMiddle});
  cases.push_back({Fault::kSave, 2, 1, kFirst});
  cases.push_back({Fault::kSharedData, 2, 0, kFirst});
  cases.push_back({Fault::kNone, 1});
  cases.push_back({Fault::kNone, 2});
  return cases;
}

// Stops a process for a while, from time to time.
class Pauses {
 public:
  explicit Pauses(const test::Process& process)
      : thread_([&process](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            std::this_thread::sleep_for(kBetweenPauses);
            process.signal(SIGSTOP);
            std::this_thread::sleep_for(kPause);
            process.signal(SIGCONT);
          }
        }) {}

 private:
  std::jthread thread_;
};

struct Wanted {
  Kind kind{};
  std::string place;
  // Of a link with the other direction; of data that all replicas wait for, the other worker.
  std::string both = {};

  // Acknowledgements of the other direction queue behind what is slow, so it may be slow, too.
  bool matches(const explain::Cause& told) const {
    return told.kind == kind && (told.place == place || (!both.empty() && told.place == both));
  }
};

Wanted wanted(const Case& one, const NamedJob& job) {
  const int at = NamedJob::worker(one.replica, one.stage);
  const auto link = [](Kind kind, int from, int to) {
    const auto [low, high] = std::minmax(from, to);
    return Wanted{kind, NamedJob::node(from) + " -> " + NamedJob::node(to),
                  NamedJob::node(low) + " <-> " + NamedJob::node(high)};
  };
  switch (one.fault) {
    case Fault::kDevice:
      return {Kind::kDevice, job.pod(at)};
    case Fault::kForward:
      return link(Kind::kLink, at, at + 1);
    case Fault::kBackward:
      return link(Kind::kLink, at + 1, at);
    case Fault::kData:
      return {Kind::kData, job.pod(at)};
    case Fault::kSharedData:
      return {Kind::kData, job.pod(at), job.pod(NamedJob::worker(1 - one.replica, one.stage))};
    case Fault::kSums:
      return link(Kind::kSums, NamedJob::worker(1 - one.replica, one.stage), at);
    case Fault::kPauses:
      return {Kind::kPauses, job.pod(at)};
    case Fault::kSave:
      return {Kind::kSave, job.pod(at)};
    case Fault::kNone:
      break;
  }
  return {Kind::kFill, ""};
}

// What its worker is told at the start.
std::vector<std::string> words_of(const Case& one, const test::TempDir& folder) {
  if (one.fault == Fault::kDevice) {
    const std::string file = folder.file(
        "slow.txt", std::to_string(kDeviceSlowAfter) + "s " + std::to_string(kSlowDevice) + "\n");
    return {"--emulate-slowness=" + file};
  }
  if (one.fault == Fault::kData || one.fault == Fault::kSharedData)
    return {"--emulate-data-delay=" + std::to_string(kDataDelay)};
  if (one.fault == Fault::kSave) return {"--emulate-save-delay=" + std::to_string(kSaveDelay)};
  return {};
}

double mean_step(const NamedJob::StepEnd& first, const NamedJob::StepEnd& last) {
  return std::chrono::duration<double>(last.time - first.time).count() / (last.steps - first.steps);
}

enum class Verdict : unsigned char { kRight, kWrong, kNoisy, kBroken };

struct Steps {  // seconds; usual: 0 = unknown
  double usual = 0, faulty = 0;
};

bool slow_down(const Case& one, const NamedJob& job) {
  const int at = NamedJob::worker(one.replica, one.stage);
  const int twin = NamedJob::worker(1 - one.replica, one.stage);
  if (one.fault == Fault::kForward) return job.limit(at, at + 1, NamedJob::kRate / kSlowLink);
  if (one.fault == Fault::kBackward) return job.limit(at + 1, at, NamedJob::kRate / kSlowLink);
  if (one.fault == Fault::kSums) return job.limit(twin, at, NamedJob::kRate / kSlowSums);
  return true;
}

// usual_step: for jobs whose fault is there from the start; by replicas.
std::optional<Steps> train(const Case& one, NamedJob& job, std::map<int, double>& usual_step) {
  if (!job.hear(1)) return std::nullopt;
  const auto begin = job.next_end();
  if (!job.hear(kUsualReports - 1)) return std::nullopt;
  const bool from_start =
      one.fault == Fault::kData || one.fault == Fault::kSharedData || one.fault == Fault::kSave;
  if (!from_start) usual_step[one.replicas] = mean_step(begin, job.next_end());

  std::unique_ptr<Pauses> pauses;
  if (one.fault == Fault::kPauses) {
    pauses = std::make_unique<Pauses>(job.process(NamedJob::worker(one.replica, one.stage)));
  }
  if (!slow_down(one, job) || !job.hear(1)) return std::nullopt;
  const auto changed = job.next_end();
  if (!job.hear(kFaultyReports - 1)) return std::nullopt;
  return Steps{.usual = usual_step[one.replicas],
               .faulty = mean_step(from_start ? begin : changed, job.next_end())};
}

Verdict judge(int number, const Case& one, const NamedJob& job, const Steps& steps) {
  const Wanted right = wanted(one, job);
  const auto& main = job.causes().main;
  const bool blames = main && main->kind != Kind::kOrder && main->kind != Kind::kFill;
  const bool named = one.fault == Fault::kNone ? !blames : main && right.matches(*main);
  const int late = job.late_p99();
  // A pause of the case itself makes wake-ups late, too.
  const bool noisy = !named && one.fault != Fault::kPauses && late > kMostLate;
  const char* const verdict = named ? "right" : noisy ? "NOISY" : "WRONG";
  const bool known = one.fault != Fault::kNone && steps.usual > 0;
  std::printf(
      "%2d  %d x %d  %-10s %-14s %6.1f ms, costs %5.1f, told %5.1f  %s  %s\n", number, one.replicas,
      NamedJob::kStages, one.fault == Fault::kNone ? "usual" : explain::name(right.kind),
      right.place.c_str(), 1e3 * steps.faulty, known ? 1e3 * (steps.faulty - steps.usual) : 0,
      main && blames ? 1e3 * main->seconds : 0, verdict, main ? main->text.c_str() : "nothing");
  for (const auto& also : job.causes().also) {
    std::printf("      also %s, %.1f ms\n", also.text.c_str(), 1e3 * also.seconds);
  }
  if (!named) std::printf("      wake-ups late by %d us (p99)\n", late);
  for (const auto& sums : job.links_of_sums()) {
    if (named) break;
    std::printf("      sums %s -> %s: %.1f Mbit/s, usually %.1f\n", sums.from_node.c_str(),
                sums.to_node.c_str(), 8e-6 * sums.now, 8e-6 * sums.baseline);
  }
  std::fflush(stdout);
  if (named) return Verdict::kRight;
  return noisy ? Verdict::kNoisy : Verdict::kWrong;
}

Verdict run(int number, const Case& one, std::map<int, double>& usual_step) {
  const test::TempDir folder;
  const int workers = one.replicas * NamedJob::kStages;
  const auto spaces = Namespaces::make(kFirstSlot + number, workers);
  if (!spaces) return Verdict::kBroken;
  std::map<int, std::vector<std::string>> words;
  words[NamedJob::worker(one.replica, one.stage)] = words_of(one, folder);
  if (one.fault == Fault::kSharedData) {
    words[NamedJob::worker(1 - one.replica, one.stage)] = words_of(one, folder);
  }
  for (int i = 0; one.fault == Fault::kSave && i < workers; ++i) {
    words[i].push_back("--checkpoint-dir=" + (folder.path() / "saves").string());
    words[i].push_back("--checkpoint-interval=" + std::to_string(kSaveEvery));
  }
  const auto job = NamedJob::start(one.replicas, *spaces, words);
  const auto steps = job ? train(one, *job, usual_step) : std::nullopt;
  return steps ? judge(number, one, *job, *steps) : Verdict::kBroken;
}

}  // namespace

int run_cases(const std::vector<int>& numbers) {
  const auto cases = all_cases();
  std::map<int, double> usual_step;
  int right = 0, noisy = 0, count = 0;
  for (int i = 0; i < std::ssize(cases); ++i) {
    if (!numbers.empty() && std::ranges::find(numbers, i) == numbers.end()) continue;
    const Verdict verdict = run(i, cases[static_cast<std::size_t>(i)], usual_step);
    if (verdict == Verdict::kBroken) {
      std::printf("case %d was not run\n", i);
      return kFail;
    }
    ++count;
    right += verdict == Verdict::kRight ? 1 : 0;
    noisy += verdict == Verdict::kNoisy ? 1 : 0;
  }
  std::printf("%d of %d right, %d not judged, as the machine was too busy\n", right, count, noisy);
  if (right + noisy < count) return kFail;
  return noisy > 0 ? kSkipped : 0;
}

}  // namespace weir::bench

int main(int argc, char** argv) {
  std::vector<int> numbers;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (!word.starts_with("--cases=")) {
      std::fprintf(stderr, "naming_bench [--cases=N,N,...]\n");
      return weir::bench::kWrongUse;
    }
    for (std::size_t at = word.find('='); at != word.npos; at = word.find(',', at + 1)) {
      numbers.push_back(std::atoi(word.c_str() + at + 1));
    }
  }
  return weir::bench::run_cases(numbers);
}
