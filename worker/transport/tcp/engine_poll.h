// SPDX-License-Identifier: Apache-2.0
// How the engine thread waits: for sockets, a deadline, a stop request, or another thread's wake().
// An epoll instance: a large message takes a dozen waits, and poll() would register with each
// socket in each of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <vector>

namespace weir::transport::tcp {

class EnginePoll {
 public:
  EnginePoll();
  ~EnginePoll();
  EnginePoll(const EnginePoll&) = delete;
  EnginePoll& operator=(const EnginePoll&) = delete;

  void add(int descriptor);  // before the first wait()

  // Returns when something may have happened; then readable(i) and writable(i) say what. Engine
  // thread.
  void wait(std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);
  bool readable(std::size_t i) const { return watched_[i].readable; }
  bool writable(std::size_t i) const { return watched_[i].writable; }
  void ask_writable(std::size_t i, bool wanted);
  void drop(std::size_t i);

  void wake() noexcept;  // any thread

 private:
  struct Watched {
    int descriptor = -1;
    bool wanted = false;  // to know when it is writable
    bool asked = false;   // the same of the system; a withdrawal waits until it would wake
    bool readable = false;
    bool writable = false;
  };

  int epoll_ = -1;
  int event_ = -1;
  std::vector<Watched> watched_;

  void ask(std::size_t i, bool writable);
  void note(std::size_t i, std::uint32_t events);
};

}  // namespace weir::transport::tcp
