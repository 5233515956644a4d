// SPDX-License-Identifier: Apache-2.0
// weir-worker. The main thread handles signals; the engine's thread does everything else
// (steps.cpp).
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

#include "worker/app/steps.h"
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

// The first SIGTERM asks the engine to end. A second one ends the process.
[[noreturn]] void serve(State& state) {
  const sigset_t signals = handled_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by every thread
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write above the file size limit then returns an error
  // Inherited by threads; the default of 50 us costs 0.4 % of a step.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);

  std::atomic<bool> done{false};
  const pthread_t main_thread = pthread_self();
  std::jthread engine([&] {
    pthread_setname_np(pthread_self(), "engine");
    try {
      run_steps(state);
    } catch (const std::exception& error) {  // no thread, file descriptor or memory is left
      log_error("app", "ends: " + describe(error), {{"exit_code", static_cast<int>(Exit::kCrash)}});
      state.exit_code = static_cast<int>(Exit::kCrash);
    }
    done = true;
    pthread_kill(main_thread, SIGUSR1);
  });
  while (!done) {
    const int got = sigtimedwait(&signals, nullptr, &kSignalSlice);
    if (got != SIGTERM && got != SIGINT) continue;
    if (state.shutdown.requested()) _exit(static_cast<int>(Exit::kTerminated));
    state.shutdown.request();
  }
  engine.join();
  // The steps have undone everything visible from outside. Only memory is left, and threads that
  // may wait for a name lookup or for a page to be read.
  std::fflush(nullptr);
  _exit(state.exit_code);
}

int fail(Exit code, const std::string& why) {
  std::fprintf(stderr, "weir-worker: %s\n", why.c_str());
  write_termination_message(why);
  return static_cast<int>(code);
}

int run(int argc, const char* const* argv) {
  set_termination_log(find_termination_log());
  auto parsed = parse_options(argc, argv);
  if (!parsed) return fail(Exit::kConfiguration, parsed.error().message);
  if (const auto* help = std::get_if<Help>(&*parsed)) {
    std::fputs(help->text.c_str(), stdout);
    return 0;
  }
  State state;
  state.options = std::get<Options>(*std::move(parsed));
  set_log(state.options.log_level, state.options.log_format);
  if (state.options.dry_run) {
    print_steps();
    return 0;
  }
  serve(state);
}

}  // namespace
}  // namespace weir::app

int main(int argc, char** argv) {
  try {
    return weir::app::run(argc, argv);
  } catch (const std::exception& error) {
    return weir::app::fail(weir::app::Exit::kCrash, weir::describe(error));
  }
}
