// SPDX-License-Identifier: Apache-2.0
#include "worker/app/run.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <pthread.h>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

#include "worker/app/export_command.h"
#include "worker/app/steps.h"
#include "worker/app/stop_signals.h"
#include "worker/base/exception_text.h"
#include "worker/base/termination.h"

namespace weir::app {
namespace {

constexpr timespec kSignalSlice{.tv_sec = 1, .tv_nsec = 0};

void print_steps() {
  const std::vector<Step>& list = steps();
  for (const Step& step : list) std::printf("%s\n", step.name);
  for (std::size_t i = list.size(); i-- > 0;) {
    if (list[i].undo != nullptr) std::printf("undo: %s\n", list[i].name);
  }
}

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int one : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, one);
  return set;
}

void run_to_the_end(State& state) {
  try {
    run_steps(state);
  } catch (const std::exception& error) {  // no thread, file descriptor or memory is left
    log_error("app", "ends: " + describe(error), {{"exit_code", static_cast<int>(Exit::kCrash)}});
    state.exit_code = static_cast<int>(Exit::kCrash);
  }
}

// The calling thread waits for signals while the engine has its own. The first SIGTERM asks the
// engine to end. A second one ends the process.
void serve(State& state) {
  const sigset_t signals = handled_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by every thread
  std::atomic<bool> done{false};
  const pthread_t main_thread = pthread_self();
  std::jthread engine([&] {
    pthread_setname_np(pthread_self(), "engine");
    run_to_the_end(state);
    done = true;
    pthread_kill(main_thread, SIGUSR1);
  });
  while (!done) {
    const int got = sigtimedwait(&signals, nullptr, &kSignalSlice);
    if (got != SIGTERM && got != SIGINT) continue;
    if (state.shutdown.requested()) _exit(static_cast<int>(Exit::kTerminated));
    state.shutdown.request();
  }
}

void serve_here(State& state) {
  const StopSignals signals([&state] { state.shutdown.request(); }, state.options.grace);
  run_to_the_end(state);
}

int run(int argc, const char* const* argv, const char* program, const weir_layers* layers) {
  set_termination_log(find_termination_log());
  if (is_export(argc, argv)) {
    const auto said = run_export(argc, argv);
    if (!said) return fail(program, static_cast<int>(Exit::kConfiguration), said.error().message);
    std::fputs(said->c_str(), stdout);
    return 0;
  }
  auto parsed = parse_options(argc, argv, layers != nullptr ? program : nullptr);
  if (!parsed) {
    return fail(program, static_cast<int>(Exit::kConfiguration), parsed.error().message);
  }
  if (const auto* help = std::get_if<Help>(&*parsed)) {
    std::fputs(help->text.c_str(), stdout);
    return 0;
  }
  // The steps have undone everything visible from outside when they end. Only memory is left, and
  // threads that may wait for a name lookup or for a page to be read.
  static State& state = *new State;
  state.options = std::get<Options>(*std::move(parsed));
  state.layers = layers;
  set_log(state.options.log_level, state.options.log_format);
  if (state.options.dry_run) {
    print_steps();
    return 0;
  }
  if (state.options.describe) {
    const Result<std::string> text = description(state);
    if (!text) return fail(program, static_cast<int>(Exit::kConfiguration), text.error().message);
    std::fputs(text->c_str(), stdout);
    return 0;
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write above the file size limit then returns an error
  // Inherited by threads; the default of 50 us costs 0.4 % of a step.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  layers != nullptr ? serve_here(state) : serve(state);
  return state.exit_code;
}

}  // namespace

int fail(const char* program, int code, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program, why.c_str());
  write_termination_message(why);
  return code;
}

int run_worker(int argc, const char* const* argv, const weir_layers* layers) {
  const char* const program = layers != nullptr && argc > 0 ? argv[0] : "weir-worker";
  try {
    return run(argc, argv, program, layers);
  } catch (const std::exception& error) {
    return fail(program, static_cast<int>(Exit::kCrash), describe(error));
  }
}

}  // namespace weir::app
