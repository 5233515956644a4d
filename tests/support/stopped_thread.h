// SPDX-License-Identifier: Apache-2.0
// A thread of a child process stands still while the others go on, as one does in a call that never
// returns. Linux, and the right to trace the process.
#pragma once

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <utility>

#include <linux/futex.h>

namespace weir::test {

// Made, used and destroyed by one thread.
class StoppedThread {
 public:
  // The thread of that name; null where there is none or this system does not allow it. It stops
  // where it waits for others without a lock, so that it keeps nothing that the others need.
  static std::unique_ptr<StoppedThread> of(pid_t process, const std::string& name) {
    const std::string tasks = "/proc/" + std::to_string(process) + "/task";
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(tasks, gone)) {
      std::string told;
      std::ifstream(entry.path() / "comm") >> told;
      if (told != name) continue;
      const pid_t id = std::stoi(entry.path().filename());
      if (ptrace(PTRACE_SEIZE, id, nullptr, nullptr) != 0) return nullptr;
      auto stopped = std::unique_ptr<StoppedThread>(new StoppedThread(id, entry.path()));
      for (int tries = 0; tries < 10'000; ++tries) {
        if (!stopped->stop()) return nullptr;
        if (stopped->waits_without_a_lock()) return stopped;
        ptrace(PTRACE_CONT, id, nullptr, nullptr);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return nullptr;
    }
    return nullptr;
  }
  ~StoppedThread() { ptrace(PTRACE_DETACH, id_, nullptr, nullptr); }
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

  // Returns whether its process ends within the limit. Without this call nobody could wait for the
  // process, because this thread of it would be left.
  bool ends(std::chrono::seconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < until) {
      const pid_t got = waitpid(id_, nullptr, __WALL | WNOHANG);
      if (got == id_ || (got < 0 && errno == ECHILD)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

 private:
  StoppedThread(pid_t id, std::filesystem::path task) : id_(id), task_(std::move(task)) {}

  bool stop() const {
    if (ptrace(PTRACE_INTERRUPT, id_, nullptr, nullptr) != 0) return false;
    int status = 0;
    return waitpid(id_, &status, __WALL) == id_ && WIFSTOPPED(status);
  }
  // In a wait for a condition or for sockets; a wait for a mutex is another call.
  bool waits_without_a_lock() const {
    long call = -1;
    unsigned long arguments[2] = {};
    std::ifstream file(task_ / "syscall");
    file >> call >> std::hex;
    for (unsigned long& one : arguments) file >> one;
    if (call == SYS_futex) return (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    return call == SYS_ppoll || call == SYS_epoll_pwait
#ifdef SYS_poll
           || call == SYS_poll || call == SYS_epoll_wait
#endif
        ;
  }

  const pid_t id_;
  const std::filesystem::path task_;
};

}  // namespace weir::test
